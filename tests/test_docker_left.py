"""What a dead or stuck harness leaves: nothing, whatever fault was in force when it died.

All kinds that the backend carries are in force at once.  Six seconds later the engine, and the
rules and interfaces of its machine, are as they were before the run.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import ledger, procfs
from harness.docker.engine import OWNER_LABEL, RUN_LABEL
from harness.docker.project import PROJECT_LABEL, composed_name
from harness.docker.sweep import heal
from harness.errors import UsageError
from harness.node import ProcessId
from harness.plugins import entries
from harness.runfile import from_values, to_yaml
from tests.live import LiveRun, live_run, slay, stretched, until
from tests.support_compose import IMAGE, needs_project, spec
from tests.support_docker import api, held_by_nobody
from tests.support_engine_state import new_since, state

pytestmark = [*needs_project, pytest.mark.real]
SILENCE_S = 5.0
OWN = {"lock": "etcd", "store": "atlasmart", "backend": "docker"}
# Each kind, on nodes that leave others to be hit.  Two members of three must agree to a change, and
# the adversary needs a holder, whom the others put out.
FAULTS = {
    "amnesia": ["who=store,age=50ms,at=3s"],
    "authority": ["at=100ms"],
    "clock": ["who=server:1,jump=1h,clock=both,at=3s"],
    "disk": ["who=server:1,at=3s"],
    "kill": ["who=server:2,at=6s"],
    "link": ["who=r1,delay=5ms,at=3s"],
    "membership": ["who=server:3,at=3s"],
    "message": ["who=all,at=3s"],
    "partition": ["who=w3,at=3s", "who=w3,reject=true,at=3s"],
    "pause": ["who=w1,at=3s", "who=w2,by=sigstop,at=3s"],
}


def carried(values: dict[str, Any]) -> list[str]:
    """Return the faults of each kind that are possible in a run, all for longer than it lasts."""
    found = []
    for fault in (
        f"{kind}:{words},for=60s" for kind in entries("faults") for words in FAULTS[kind]
    ):
        with contextlib.suppress(UsageError):
            from_values(values | {"faults": [fault], "time": "90s"})
            found.append(fault)
    return found


@pytest.fixture
def engine() -> Iterator[Any]:
    with api() as client:
        yield client


def run_of(client: Any, owner: int) -> str:
    """Return the name of the run that a process owns."""
    for one in client.containers(filters={"label": RUN_LABEL}):
        if one["Labels"][OWNER_LABEL].split("/")[-2] == str(owner):
            return str(one["Labels"][RUN_LABEL])
    return ""


def child(parent: int, words: bytes) -> ProcessId:
    """Return the process that a run's process started and whose command has these words."""
    for pid in procfs.pids():
        status = procfs.read(f"/proc/{pid}/status") or b""
        command = procfs.read(f"/proc/{pid}/cmdline") or b""
        if f"PPid:\t{parent}\n".encode() in status and words in command:
            return ProcessId(pid, procfs.start_ticks(pid) or 0)
    raise AssertionError(f"{parent} has no {words.decode()}")


def paused(client: Any, run: str) -> list[str]:
    """Return what of a run the engine has frozen."""
    names = []
    for label in (f"{RUN_LABEL}={run}", f"{PROJECT_LABEL}={composed_name(run)}"):
        names += client.containers(filters={"label": label, "status": "paused"})
    return [one["Names"][0] for one in names]


@contextmanager
def in_force(client: Any, tmp_path: Path, text: str, kinds: set[str]) -> Iterator[tuple[Any, ...]]:
    """Live a run until all its faults are in its ledger, and something is frozen."""

    def entered() -> bool:
        path = live.ledger()
        return path is not None and kinds <= {e["fault"] for e in ledger.read(path)[1]}

    live: LiveRun
    with live_run(tmp_path, text) as live:
        until(entered, f"all of {kinds}")
        harness = child(live.process.pid, b"harness.docker.main")
        run = run_of(client, harness.pid)
        assert run
        until(lambda: paused(client, run), "something frozen")
        yield run, live.process.pid, harness, child(harness.pid, b"harness.docker.reaper")


def gone(client: Any, before: Any, run: str, harness: ProcessId) -> Callable[[], bool]:
    def look() -> bool:
        seen.clear()
        seen.extend(new_since(before, state(client), run))
        return not seen and not procfs.alive(harness)

    seen: list[str] = []
    return look


def await_end(client: Any, before: Any, run: str, harness: ProcessId) -> None:
    """Wait until the engine is as before, but for what it takes for used by nobody."""
    try:
        until(gone(client, before, run, harness), "an engine as before", stretched(6.0))
    except AssertionError as error:
        names = {one["Name"] for one in client.networks() if run in one["Name"]}
        left = new_since(before, state(client), run, held_by_nobody(client, names))
        if left or procfs.alive(harness):
            raise AssertionError(f"left: {', '.join(left)}") from error


@pytest.mark.parametrize("victim", ["harness", "outer", "all of them"])
def test_sigkill_during_every_fault_leaves_nothing(
    engine: Any, tmp_path: Path, victim: str
) -> None:
    asked = carried(OWN)
    kinds = {fault.partition(":")[0] for fault in asked}
    assert kinds == set(entries("faults"))
    text = to_yaml(from_values(OWN | {"faults": asked, "time": "90s", "ttl": "2s"}))
    before = state(engine)
    with in_force(engine, tmp_path, text, kinds) as (run, outer, harness, reaper):
        assert new_since(before, state(engine), run)
        victims = {
            "harness": [harness.pid],
            "outer": [outer],
            "all of them": [outer, reaper.pid, harness.pid],  # nobody is left but who comes later
        }
        slay(*victims[victim])
        if victim == "all of them":
            until(lambda: not procfs.alive(harness), "the end of the harness")
            assert not gone(engine, before, run, harness)()
            heal()  # or another run that begins just now
        await_end(engine, before, run, harness)


@pytest.fixture
def bystander(engine: Any) -> Iterator[str]:
    """Let a container of somebody else run, of the same image."""
    argv = ["/usr/local/bin/etcd"]
    made = engine.create_container(IMAGE, [], entrypoint=argv)["Id"]
    engine.start(made)
    yield made
    engine.remove_container(made, force=True, v=True)


def test_a_stuck_harness_holds_nothing_frozen_and_a_dead_one_leaves_nothing(
    engine: Any, tmp_path: Path, bystander: str
) -> None:
    before = state(engine)
    about = spec(tmp_path)
    values = {
        "lock": about.lock.name,
        "store": about.store.name,
        "compose": about.compose,
        "servers": about.servers,
    }
    asked = [*carried(values), "pause:who=etcd3,at=1s,for=60s"]
    kinds = {fault.partition(":")[0] for fault in asked}
    assert {"clock", "kill", "partition", "pause"} <= kinds
    text = to_yaml(from_values(values | {"faults": asked, "time": "90s", "ttl": "2s"}))
    with in_force(engine, tmp_path, text, kinds) as (run, _, harness, _):
        until(lambda: any("etcd3" in name for name in paused(engine, run)), "a frozen server")
        os.kill(harness.pid, signal.SIGSTOP)
        until(lambda: not paused(engine, run), "a thaw", SILENCE_S + stretched(6.0))
        os.kill(harness.pid, signal.SIGKILL)
        await_end(engine, before, run, harness)
    assert engine.inspect_container(bystander)["State"]["Status"] == "running"
