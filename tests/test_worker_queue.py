"""A worker that queues for a lock keeps its place alive, and knows what it was told last."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.protocol import FromWorker
from harness.renewer import Holdings
from harness.target import Grant
from tests.test_worker import Driver

TARGET = """
import threading
from harness import Grant, RefusedError
from harness.target import Queued

FREE = threading.Event()  # one for all clients of the process

class Client:
    def acquire(self, key, ttl_s): return Grant(key, 7, 0.3)
    def queue(self, key, ttl_s): return Queued(Grant(key, 5, ttl_s), key != "free")
    def wait(self, place, wait_s):
        if place.grant.key == "gone": raise RefusedError("not-holder", "session is expired")
        if place.grant.key != "free" and not FREE.wait(wait_s): raise TimeoutError("in vain")
        return place.grant
    def renew(self, grant):
        if grant.key == "dead":
            FREE.set()
            raise RefusedError("not-holder", "the lease has ended")
        if grant.key == "opens": FREE.set()
    def release(self, grant): ...
    def close(self): ...

class Mine:
    name = "mine"
    fence = "none"
    def servers(self): return []
    def lock(self, cluster, timeout_s): return Client()
    def store(self, cluster, timeout_s): return Client()
"""
ASKED = {"ttl_s": 0.3, "wait_s": 20.0}


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Driver]:
    target = tmp_path / "mine.py"
    target.write_text(TARGET)
    driver = Driver(target, tmp_path / "log")
    try:
        assert driver.next()["type"] == "ready"
        yield driver
    finally:
        driver.close()


def go(worker: Driver, key: str) -> dict[str, Any]:
    """Let the next attempt to keep a place alive happen; return how it ended."""
    ask = worker.find(type="ask")
    assert (ask["f"], ask["key"], ask["token"]) == ("keep", key, 5)
    worker.write(json.dumps({"type": "go", "id": 1000, "ask": ask["ask"]}).encode() + b"\n")
    return worker.find(type="done", id=1000)


def test_a_place_is_kept_alive_while_the_worker_queues(worker: Driver) -> None:
    number = worker.send("acquire", "opens", value=ASKED)
    assert worker.find(type="phase")["phase"] == "queued"
    assert go(worker, "opens")["result"] == "ok"
    done = worker.find(type="done", id=number)
    assert (done["result"], done["token"]) == ("ok", 5)
    assert worker.find(type="phase")["phase"] == "acquired"


def test_a_place_that_nobody_stands_before_passes_no_phase_of_waiting(worker: Driver) -> None:
    worker.send("acquire", "free", value=ASKED)
    assert worker.find(type="phase")["phase"] == "acquired"


def test_a_place_that_is_lost_is_no_longer_kept_alive(worker: Driver) -> None:
    number = worker.send("acquire", "dead", value=ASKED)
    refused = go(worker, "dead")
    assert (refused["result"], refused["error"]) == ("fail", "not-holder: the lease has ended")
    assert worker.find(type="done", id=number)["result"] == "ok"  # the service says so


def test_a_refusal_and_a_wait_in_vain_are_told_apart(worker: Driver) -> None:
    done = worker.ask("acquire", "gone", value=ASKED)
    assert (done["result"], done["error"]) == ("fail", "not-holder: session is expired")
    done = worker.ask("acquire", "busy", value=ASKED | {"wait_s": 0.01})
    assert (done["result"], done["error"]) == ("info", "TimeoutError: in vain")


def test_a_client_that_cannot_queue_breaks_the_contract(tmp_path: Path) -> None:
    target = tmp_path / "mine.py"
    target.write_text(TARGET.replace("def queue(", "def cannot("))
    driver = Driver(target, tmp_path / "log")
    try:
        driver.send("acquire", "k", value=ASKED)
        assert "cannot queue" in driver.find(type="done")["error"]
    finally:
        driver.close()


def test_what_was_kept_alive_last_counts_when_the_turn_comes() -> None:
    said: list[FromWorker] = []
    holdings = Holdings(said.append)
    place = Grant("k", 5, 2.0)
    holdings.queue(place, began=10.0)
    due = holdings.next_due()
    assert due is not None
    assert due.queued
    assert due.renew_at == pytest.approx(10 + 2 / 3)
    holdings.renewed(place, began=11.0)
    assert said == []  # a place in the queue is no hold
    assert holdings.grant("k") is None
    assert holdings.leave_queue("k") == pytest.approx(11.0)
    assert holdings.next_due() is None
    holdings.queue(place, began=12.0)
    holdings.refused(place)
    assert holdings.leave_queue("k") is None
    assert said == []
