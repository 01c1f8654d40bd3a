"""Suites of released etcd versions: what is wrong with the old ones, and right with the new one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import released
from harness.suite import locate, read_suite

SUITES = {"etcd-11456": ["3.4.3", "3.7.1"], "etcd-access": ["3.7.1"], "etcd": ["3.7.1"]}


@pytest.fixture(autouse=True)
def clients() -> None:
    pytest.importorskip("grpc", reason="the extra `etcd` is not installed")
    pytest.importorskip("redis", reason="the extra `valkey` is not installed")


def needed(versions: list[str]) -> None:
    """Skip, by name, where a version is not in the cache: a build takes minutes."""
    for version in versions:
        if released.binary("etcd", version) is None:
            pytest.skip(f"etcd {version} is not in the cache: winkle get etcd@{version}")


@pytest.mark.parametrize("name", SUITES)
def test_the_runs_of_a_suite_are_right(name: str) -> None:
    needed(SUITES[name])
    named = [plan.spec.lock.options.get("version") for plan in read_suite(locate(name))]
    assert {version for version in named if version} == set(SUITES[name])


@pytest.mark.real
@pytest.mark.sandbox
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SUITES)
def test_a_suite_comes_out_as_expected(name: str, tmp_path: Path) -> None:
    needed(SUITES[name])
    out = tmp_path / "runs"
    words = [sys.executable, "-P", "-m", "harness.cli", "suite", name, "--out", str(out), "--json"]
    done = subprocess.run(
        words,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for run in json.loads(done.stdout)["runs"]:
        folder = Path(run["folder"])
        results = json.loads((folder / "results.json").read_bytes())
        assert results["leftover"] == []
        version = next((v for v in SUITES[name] if v in run["name"]), "3.")
        assert version in results["facts"]["etcd"]
        assert not (folder / "report-error.txt").exists()
