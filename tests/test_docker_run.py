"""Whole runs whose nodes are containers: verdicts, bad servers, and what is left of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.live import stretched
from tests.support_docker import api, await_nothing, leavings, needs_engine

pytestmark = needs_engine()
PAUSE = "pause:who=holder,at=before-write,for=2.5leases"


@pytest.fixture
def engine() -> Iterator[Any]:
    with api() as client:
        yield client


def winkle(tmp_path: Path, *words: str) -> dict[str, Any]:
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", "--backend", "docker", "--json"]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "runs"), *words],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.stdout, done.stderr.decode()
    said: dict[str, Any] = msgspec.json.decode(done.stdout)
    return said | {"stderr": done.stderr.decode()}


def test_an_unfenced_store_fails_and_nothing_is_left(engine: Any, tmp_path: Path) -> None:
    words = ("--lock", "atlasmart", "--store", "atlasmart", "--fault", PAUSE, "--time", "11s")
    said = winkle(tmp_path, *words, "--seed", "3")
    verdict = said["results"]["verdict"]
    assert verdict["verdict"] == "fail", said
    assert "stale-owner-write" in {anomaly["name"] for anomaly in verdict["anomalies"]}
    await_nothing(lambda: leavings(engine), engine, stretched(6.0))


@pytest.mark.real
def test_etcd_and_a_fenced_valkey_pass_with_a_pause_and_a_cut(tmp_path: Path) -> None:
    faults = ("--fault", PAUSE, "--fault", "partition:who=leader,at=8s,for=2s")
    words = ("--lock", "etcd", "--store", "valkey[fenced=true]", *faults, "--time", "13s")
    said = winkle(tmp_path, *words, "--seed", "3")
    assert said["results"]["verdict"]["verdict"] == "pass", said


def test_a_server_that_ends_at_once_is_told_with_its_last_lines(
    engine: Any, tmp_path: Path
) -> None:
    mine = tmp_path / "broken.py"
    mine.write_text(BROKEN)
    said = winkle(tmp_path, "--lock", f"{mine}:Broken", "--store", "atlasmart")
    assert said["exit_code"] == 255
    told = said["error"] or said["results"]["error"]
    assert "server broken1 ended at the start with exit code 7" in told
    assert "these are my last words" in told
    await_nothing(lambda: leavings(engine), engine, stretched(6.0))


BROKEN = """
from harness.target import Server
class Broken:
    name = "broken"
    def servers(self):
        return [Server("broken1", ["sh", "-c", "echo these are my last words; exit 7"], 7)]
    def lock(self, cluster, timeout_s):
        raise NotImplementedError
"""
