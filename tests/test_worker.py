"""The worker SDK as a process: outcomes, phases, beliefs, renewals, and prints that do no harm."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import procfs
from harness.protocol import Belief, FromWorker, Hello, encode
from harness.renewer import Holdings
from harness.target import Grant
from tests.live import until

TARGET = '''
import sys, time
from harness import Grant, RefusedError, Stored
from harness.target import ErrorRule

class Client:
    def __init__(self): self.held = None
    def acquire(self, key, ttl_s):
        print("a library that prints")
        if key == "taken": raise RefusedError("held", "by somebody")
        if key == "wrong": return 42
        return Grant(key, 7, 3.0)
    def renew(self, grant):
        if grant.key == "doomed": raise RefusedError("not-holder")
        if grant.key == "forged": self.release(grant)
    def release(self, grant):
        if grant.key == "forged":
            assert (grant.ttl_s, grant.handle) == (1.0, None)
            raise RefusedError("not-holder", f"{grant.token} of {grant.key}")
    def check(self, grant): return grant.key != "lost"
    def read(self, key): return Stored({"bytes": b"\\xff<"}, 3) if key == "odd" else None
    def write(self, key, value, token):
        if value == "late": raise TimeoutError("no answer")
        if value == "early": raise ConnectionRefusedError("nobody there")
        if value == "stale": raise RefusedError("fenced", "highest is 9")
        return Stored("old", 2)
    def close(self): pass

class Mine:
    """A target for tests."""
    name = "mine"
    fence = "none"
    errors = [ErrorRule("refused", "never sent", lambda e: isinstance(e, ConnectionRefusedError))]
    def servers(self): return []
    def lock(self, cluster, timeout_s): return Client()
    def store(self, cluster, timeout_s): return Client()
'''


class Driver:
    """Talks to one worker process."""

    def __init__(self, target: Path, log: Path) -> None:
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "harness.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        spec = {"name": f"{target}:Mine", "options": {}}
        hello = Hello(
            worker="w1", lock=spec, store=spec, servers={"lock": []}, ttl_s=3.0, op_timeout_s=1.0
        )
        self.write(encode(hello))
        self.ids = 0

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def send(self, f: str, key: str | None = "k", **more: object) -> int:
        self.ids += 1
        record = {"type": "op", "id": self.ids, "f": f, "key": key, **more}
        self.write(json.dumps(record).encode() + b"\n")
        return self.ids

    def find(self, **wanted: object) -> dict[str, Any]:
        """Return the next message that has these fields; others are passed over."""
        while True:
            message = self.next()
            if wanted.items() <= message.items():
                return message

    def ask(self, f: str, key: str | None = "k", **more: object) -> dict[str, Any]:
        return self.find(type="done", id=self.send(f, key, **more))

    def acquire(self, key: str = "k", **more: object) -> dict[str, Any]:
        return self.ask("acquire", key, value={"ttl_s": 3.0}, **more)

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Driver]:
    target = tmp_path / "mine.py"
    target.write_text(TARGET)
    driver = Driver(target, tmp_path / "log")
    try:
        ready = driver.next()
        assert ready["type"] == "ready"
        assert ready["abilities"] == ["stop_at", "clock"]
        yield driver
    finally:
        driver.close()


def test_outcomes_follow_the_error_table(worker: Driver) -> None:
    assert worker.ask("write", value="good", token=1)["result"] == "ok"
    late = worker.ask("write", value="late", token=1)
    assert (late["result"], late["error"]) == ("info", "TimeoutError: no answer")
    early = worker.ask("write", value="early", token=1)
    assert (early["result"], early["error"]) == ("fail", "no-effect: refused: nobody there")
    stale = worker.ask("write", value="stale", token=1)
    assert (stale["result"], stale["error"]) == ("fail", "fenced: highest is 9")


def test_what_was_overwritten_is_told(worker: Driver) -> None:
    done = worker.ask("write", value="good", token=5)
    assert done["value"] == {"over": {"value": "old", "token": 2}}


def test_bytes_that_are_no_text_are_escaped(worker: Driver) -> None:
    done = worker.ask("read", "odd")
    assert done["value"] == {"bytes": "\\xff<"}
    assert done["token"] == 3
    assert (
        "value" not in worker.ask("read", "empty") or worker.ask("read", "empty")["value"] is None
    )


def test_a_grant_brings_token_belief_and_phase(worker: Driver, tmp_path: Path) -> None:
    op = worker.send("acquire", value={"ttl_s": 3.0})
    belief = worker.find(type="belief")
    assert belief["holds"]
    assert 0.0 < belief["left_s"] <= 3.0
    done = worker.find(type="done", id=op)
    assert done["token"] == 7
    assert done["value"] == {"ttl_s": 3.0}
    assert worker.find(type="phase")["phase"] == "acquired"
    assert "a library that prints" in (tmp_path / "log").read_text()


def test_a_refused_lock(worker: Driver) -> None:
    done = worker.acquire("taken")
    assert (done["result"], done["error"]) == ("fail", "held: by somebody")


def test_a_client_that_breaks_its_contract_is_named(worker: Driver) -> None:
    assert "must return a Grant" in worker.acquire("wrong")["error"]
    assert "must return a Grant" in worker.find(type="failed")["error"]


def test_renewals_ask_first_and_move_the_belief(worker: Driver) -> None:
    worker.acquire()
    ask = worker.find(type="ask")
    assert (ask["f"], ask["key"], ask["token"]) == ("renew", "k", 7)
    worker.write(json.dumps({"type": "go", "id": 90, "ask": ask["ask"]}).encode() + b"\n")
    assert worker.find(type="phase", phase="renewing")
    assert worker.find(type="belief")["why"] == "renewed"
    assert worker.find(type="done", id=90)["result"] == "ok"


def test_a_refused_renewal_ends_the_belief(worker: Driver) -> None:
    worker.acquire("doomed")
    ask = worker.find(type="ask")
    worker.write(json.dumps({"type": "go", "id": 90, "ask": ask["ask"]}).encode() + b"\n")
    belief = worker.find(type="belief", holds=False)
    assert belief["why"] == "the service refused the renewal"
    assert worker.find(type="done", id=90)["result"] == "fail"


def test_a_lease_that_nobody_renews_ends_by_the_workers_own_clock(worker: Driver) -> None:
    worker.acquire()
    worker.find(type="ask")  # and nobody answers
    check = {"ask": True, "think_ms": 0}
    until(
        lambda: (
            worker.ask("check", token=7, value=check)["value"] == {"held": False, "asked": False}
        ),
        "the worker to know that its lease is over",
    )
    release = worker.ask("release", token=7)
    assert release["error"] == "no-effect: this worker knows that it lost the lock"


class Stubborn:
    """A library whose flag says yes until it is set to no."""

    def __init__(self) -> None:
        self.flag = True

    def believes(self, grant: Grant) -> bool:
        return self.flag


def test_a_library_with_a_flag_of_its_own_decides_what_the_worker_believes() -> None:
    library, said = Stubborn(), list[FromWorker]()
    holdings = Holdings(said.append, library.believes)
    grant = Grant("k", 7, 0.001)
    holdings.gain(grant, time.monotonic() - 1.0)  # its lease is over
    assert holdings.grant("k") is grant
    holdings.refused(grant)
    assert holdings.grant("k") is grant
    library.flag = False
    assert holdings.grant("k") is None
    beliefs = [(m.holds, m.left_s, m.why) for m in said if isinstance(m, Belief)]
    assert beliefs == [(True, None, "granted"), (False, None, "its client library says so")]


def test_without_such_a_flag_the_clock_and_a_refusal_decide() -> None:
    holdings = Holdings(lambda _: None)
    holdings.gain(Grant("k", 7, 0.001), time.monotonic() - 1.0)
    assert holdings.grant("k") is None
    grant = Grant("k", 8, 60.0)
    holdings.gain(grant, time.monotonic())
    holdings.refused(grant)
    assert holdings.grant("k") is None


@pytest.mark.parametrize("f", ["renew", "release"])
def test_a_grant_that_is_made_up_is_used_as_it_is(worker: Driver, f: str) -> None:
    made_up = {"made_up": True, "ttl_s": 1.0}
    done = worker.ask(f, "forged", token=99, value=made_up)
    assert (done["result"], done["error"]) == ("fail", "not-holder: 99 of forged")
    assert worker.ask("renew", token=7)["error"].startswith("no-effect: ")


@pytest.mark.parametrize(
    ("key", "ask", "held"), [("k", True, True), ("lost", True, False), ("k", False, None)]
)
def test_the_lease_check(worker: Driver, key: str, ask: bool, held: bool | None) -> None:
    worker.acquire(key)
    done = worker.ask("check", key, token=7, value={"ask": ask, "think_ms": 1})
    assert done["value"] == {"held": held}


@pytest.mark.parametrize("phase", ["lease-checked", "before-write"])
def test_a_worker_stops_itself_exactly_at_the_phase(worker: Driver, phase: str) -> None:
    worker.acquire()
    worker.send("check", token=7, value={"ask": True, "think_ms": 1}, stop_at=phase)
    assert worker.find(type="phase", phase=phase)["stopping"]
    pid = worker.process.pid
    until(lambda: set(procfs.thread_states(pid).values()) == {"T"}, "the stop of every thread")
    os.kill(pid, signal.SIGCONT)
    assert worker.find(type="phase", phase=phase)["resumed"]
    assert worker.find(type="done", id=2)["result"] == "ok"


def test_a_target_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "missing.py", tmp_path / "log")
    try:
        assert "there is no file" in driver.find(type="failed")["error"]
    finally:
        driver.close()
