"""A run folder of which a part was cut off since is not judged as if it were whole."""

import shutil
from pathlib import Path

import pytest

from harness.api import execute
from harness.judge import check_folder
from harness.runfile import read, to_yaml
from tests.live import NOOP

RUN = f"{{lock: '{NOOP}:Noop', store: '{NOOP}:Noop', workload: '{NOOP}:Flood', time: 300ms}}"


def test_a_run_that_never_began_says_so_and_nothing_else(tmp_path: Path) -> None:
    spec = read("{lock: atlasmart, store: atlasmart, faults: [pause]}")
    (tmp_path / "run.yaml").write_text(to_yaml(spec, {}))
    (tmp_path / "history.jsonl").touch()
    (tmp_path / "error.txt").write_text("no engine answers\nits log")
    verdict = check_folder(tmp_path).verdict
    assert (verdict.verdict, verdict.headline) == (
        "unknown",
        "This run never began: no engine answers",
    )
    assert [(one.reason, one.text) for one in verdict.unknown] == [
        ("harness-error", "no engine answers\nits log")
    ]


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
