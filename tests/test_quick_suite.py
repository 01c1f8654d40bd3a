"""The main job end to end: real etcd, real Valkey, the frozen holder, and the verdicts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.real
@pytest.mark.sandbox
@pytest.mark.timeout(600)
def test_the_quick_suite_comes_out_as_expected(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="the extra `etcd` is not installed")
    pytest.importorskip("redis", reason="the extra `valkey` is not installed")
    out = tmp_path / "runs"
    words = [sys.executable, "-P", "-m", "harness.cli", "suite", "quick", "--out", str(out)]
    done = subprocess.run(
        words,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 of 5 runs as expected" in done.stdout
    assert not list((tmp_path / "state").glob("vanwinkle/ledgers/*"))
    for folder in sorted(out.glob("2*")):
        results = json.loads((folder / "results.json").read_bytes())
        assert results["leftover"] == []
        assert "etcd" not in folder.name or "3." in results["facts"]["etcd"]
        page = (folder / "report.html").read_text("utf-8")
        assert results["verdict"]["verdict"].upper() in page
        assert not (folder / "report-error.txt").exists()
