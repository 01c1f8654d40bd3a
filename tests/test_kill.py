"""Kill: processes end, are proven gone, start again, and go on as new processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.api import execute
from harness.history import read_history
from harness.results import Results
from harness.runfile import read
from tests.live import NOOP

pytestmark = pytest.mark.sandbox

WORKERS = f"""
lock: {NOOP}:Noop
store: {NOOP}:Noop
workload: {NOOP}:Hold
workers: 2
readers: 0
ttl: 200ms
time: 3s
op_timeout: 100ms
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(tmp_path: Path, text: str, *faults: str) -> tuple[Path, Results, list[dict[str, Any]]]:
    """Run with these faults; return the folder, the results and the windows."""
    text += "faults:\n" + "".join(f"  - {fault}\n" for fault in faults)
    result = execute(read(text), tmp_path / "runs", quiet=True)
    assert result.folder is not None, result.error
    assert result.results is not None
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    return result.folder, result.results, [json.loads(line) for line in lines]

def test_it(tmp_path: Path) -> None:
    folder, results, windows = run(
        tmp_path, WORKERS, "kill:who=worker:1,at=500ms,for=300ms,every=300ms",
        "kill:who=holder,at=before-write,for=200ms,count=2",
        "kill:who=worker:2,at=1s,for=200ms,signal=TERM",
    )
    for w in windows: print(w)
    print(results)
    for op in read_history(folder / "history.jsonl").ops:
        if op.type=="info" or op.f=="acquire": print(op)
    print((folder/"notes.jsonl").read_text()[-3000:])
