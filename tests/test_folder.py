"""A run folder of which a part was cut off since is not judged as if it were whole."""

import shutil
from pathlib import Path

import pytest

from harness.api import execute
from harness.judge import check_folder
from harness.runfile import read
from tests.live import NOOP

RUN = f"{{lock: '{NOOP}:Noop', store: '{NOOP}:Noop', workload: '{NOOP}:Flood', time: 300ms}}"


@pytest.mark.sandbox
def test_a_torn_record_of_an_ended_run_is_unknown(tmp_path: Path) -> None:
    result = execute(read(RUN), tmp_path / "runs", quiet=True)
    assert result.folder is not None
    assert result.verdict == "pass"
    for name in ("history.jsonl", "faults.jsonl"):
        copy = tmp_path / name
        shutil.copytree(result.folder, copy)
        with (copy / name).open("ab") as file:
            file.write(b'{"torn')
        verdict = check_folder(copy).verdict
        assert verdict.verdict == "unknown"
        assert any(f"{name} ends in the middle" in reason.text for reason in verdict.unknown)
