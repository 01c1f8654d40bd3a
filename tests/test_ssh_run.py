"""Whole runs on hosts over SSH: the same verdicts as on this machine, and a lost host is told."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.local.lab import LocalNode
from tests.inside import inside
from tests.live import stretched, until
from tests.support_hosts import ROOT, Hosts, hosts, needs_sshd

pytestmark = [pytest.mark.ssh, needs_sshd]

RUN_FILE = """
lock: atlasmart
store: atlasmart[fence={fence}]
workers: 2
readers: 1
ttl: 1s
time: {time}
seed: 3
stop_on_failure: true
faults: {faults}
"""
PAUSE = "pause:who=holder,at=before-write,for=2.5leases,count=1"
MANY = [
    PAUSE,
    "partition:who=w1,shape=worker-lock,at=4s,for=1s",
    "kill:who=store1,at=6s,for=0.5s",
    "disk:who=store1,at=7.5s,for=0.5s",
    "link:who=w2,peers=servers,delay=40ms,at=2.5s,for=1s",
    "clock:who=w2,at=5.2s,for=0.6s,jump=30s",
    "clock:who=store1,clock=both,at=8.2s,for=0.4s,rate=0.5",
]


def start(
    folder: Path, fence: str, faults: Sequence[str], *words: str, length: str = "4s"
) -> tuple["subprocess.Popen[bytes]", Path]:
    """Start a run, with a folder for everything that it writes."""
    file = folder / "run.yaml"
    file.write_text(RUN_FILE.format(fence=fence, faults=json.dumps(faults), time=length))
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--json", *words]
    with (folder / "stdout").open("wb") as said, (folder / "stderr").open("wb") as errors:
        run = subprocess.Popen(
            [*argv, "--out", str(folder / "runs")],
            env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
            stdout=said,
            stderr=errors,
        )
    return run, folder


def outcome(run: "subprocess.Popen[bytes]", folder: Path) -> dict[str, Any]:
    run.wait(120)
    said = (folder / "stdout").read_bytes()
    assert said, (folder / "stderr").read_text()
    results = json.loads(said)["results"]
    verdict = results["verdict"]
    lines = (folder / "runs" / "latest" / "faults.jsonl").read_text().splitlines()
    windows = [json.loads(line) for line in lines]
    return {
        "verdict": verdict["verdict"],
        "anomalies": sorted({anomaly["name"] for anomaly in verdict["anomalies"]}),
        "unknown": verdict["unknown"],
        "error": results["error"],
        "code": run.returncode,
        "acked": verdict["stats"]["acked_writes"],
        "ran": (folder / "runs" / "latest" / "run.yaml").read_text(),
        "logged": (folder / "runs" / "latest" / "store.jsonl").read_text().count('"accepted":true'),
        "grades": sorted(f"{window['kind']}: {window['grade']}" for window in windows),
    }


def spread(made: Hosts) -> list[str]:
    """Each server and contender on a host of its own, the reader on the controller's machine."""
    nodes = {"h1": ["lock*"], "h2": ["store*"], "h3": ["w1"], "h4": ["w2"]}
    made.write(**{name: {"nodes": patterns} for name, patterns in nodes.items()})
    made.add({"name": "here", "local": True, "address": "10.77.0.1", "nodes": ["r1"]})
    return list(nodes)


def outer_killed() -> dict[str, Any]:
    """Kill the process that a user started, while faults of several kinds are in force."""
    with hosts(4) as made:
        names = spread(made)
        folder = Path(tempfile.mkdtemp(dir=ROOT))
        faults = [
            "pause:who=w2,at=1s,for=8s",
            "clock:who=w1,at=1s,for=8s,jump=30s",
            "link:who=lock1,peers=store,delay=40ms,at=1s,for=8s",
            "partition:who=store1,shape=isolate,at=1s,for=8s",
        ]
        words = ("--backend", "ssh", "--inventory", str(made.path))
        run, _ = start(folder, "none", faults, *words, length="20s")

        def rules() -> list[str]:
            return [made.nft(name, "list", "ruleset") for name in names]

        until(lambda: run.poll() is not None or "timeout" in "".join(rules()), "rules")
        until(lambda: run.poll() is not None or _paused(made.place("h4")), "a pause")
        assert run.poll() is None, outcome(run, folder)
        run.kill()
        run.wait()
        began = time.monotonic()
        until(lambda: all(len(made.place(n).processes()) == 2 for n in names), "quiet hosts")
        until(lambda: rules() == [""] * 4, "no rules")
        return {"took_s": time.monotonic() - began}


def _paused(place: LocalNode) -> bool:
    return place.threads().stopped > 0


def test_nothing_is_left_on_hosts_when_outer_is_killed_during_faults() -> None:
    assert inside(outer_killed)["took_s"] < stretched(6.0)


def over_ssh() -> list[Any]:
    with hosts(4) as made:
        names = spread(made)
        words = ("--backend", "ssh", "--inventory", str(made.path))
        folders = [Path(tempfile.mkdtemp(dir=ROOT)) for _ in range(2)]
        found = [
            outcome(*start(folders[0], "none", [PAUSE], *words)),
            outcome(*start(folders[1], "checked", MANY, *words, length="11s")),
        ]
        until(lambda: all(len(made.place(n).processes()) == 2 for n in names), "quiet hosts")
        return [*found, [made.nft(name, "list", "ruleset") for name in names]]


def test_faults_are_proven_and_a_pause_gives_the_verdict_of_the_local_backend(
    tmp_path: Path,
) -> None:
    local, folder = start(tmp_path, "none", [PAUSE])
    with local:
        unfenced, fenced, rules = inside(over_ssh)
        here = outcome(local, folder)
    assert unfenced["grades"] == here["grades"] == ["pause: installed"], unfenced
    assert unfenced["verdict"] == here["verdict"] == "fail", unfenced
    assert "stale-owner-write" in unfenced["anomalies"]
    assert "stale-owner-write" in here["anomalies"]
    assert fenced["verdict"] == "pass", fenced
    for host in ("h1", "h2", "h3", "h4"):
        assert f"host {host}: " in unfenced["ran"]
    assert "processes in a pid namespace" in unfenced["ran"]
    for found in (fenced, unfenced, here):
        assert found["logged"] >= found["acked"] > 0
    assert fenced["grades"] == [
        f"{kind}: installed"
        for kind in ("clock", "clock", "disk", "kill", "link", "partition", "pause")
    ]
    assert rules == [""] * 4


def frozen() -> dict[str, Any]:
    """Freeze the whole host of a worker while it works, and let a fault begin there then.

    The fence holds: an old owner that wakes before its host freezes would be a finding without it.
    """
    with hosts(4) as made:
        spread(made)
        folder = Path(tempfile.mkdtemp(dir=ROOT))
        words = ("--backend", "ssh", "--inventory", str(made.path))
        faults = ["pause:who=w2,at=1s,for=1s,every=0.5s"]
        run = start(folder, "checked", faults, *words, length="9s")
        history = folder / "runs" / "latest" / "history.jsonl"
        told = history.with_name("faults.jsonl")
        until(lambda: run[0].poll() is not None or _named(told, "w2"), "a pause of w2")
        assert run[0].poll() is None, outcome(*run)
        made.place("h4").stop("test")
        before = len(_ends(history, "w1"))
        return outcome(*run) | {
            "log": (folder / "runs/latest/logs/w2.log").read_text(),
            "gap_s": _longest_gap_s(_ends(history, "w1")[before:]),
        }


def _named(path: Path, name: str) -> bool:
    return path.exists() and f'"{name}"'.encode() in path.read_bytes()


def _ends(history: Path, worker: str) -> list[float]:
    """Return when the ops of a worker ended, in seconds."""
    ops = [json.loads(line) for line in history.read_bytes().splitlines(keepends=True)[:-1]]
    return [op["time_ns"] / 1e9 for op in ops if op["worker"] == worker and op["type"] != "invoke"]


def _longest_gap_s(times: Sequence[float]) -> float:
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def test_a_frozen_host_is_told_never_a_pass_and_holds_nobody_else() -> None:
    found = inside(frozen)
    assert found["gap_s"] < 3.0, "a look at a frozen host lasts until it is given up, 5 s"
    assert found["verdict"] == "unknown"
    assert found["code"] == 2
    texts = [entry["text"] for entry in found["unknown"] if entry["reason"] == "harness-error"]
    said = "the loss of its host: host h4: nothing was heard of it for 5."
    assert f"worker w2: it ended with {said}" in texts[0]
    assert said in found["log"]
