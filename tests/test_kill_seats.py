"""A worker that was ended on order and started again takes its seat: new numbers, no memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from harness.clock import MonotonicClock
from harness.controller import Controller
from harness.crew import Worker
from harness.generator import Generator, Invoke, Step, Wait
from harness.history import HistoryWriter, read_history
from harness.note import Note
from harness.op import Op
from harness.protocol import Ask, Belief, Done, Failed, Ready, SendOp
from harness.spec import RunSpec, TargetSpec
from harness.trap import Traps
from workloads.fencing import Fencing

FOR_EVER_NS = 10**18


@dataclass
class Puppet:
    """A worker of which a test says what it says."""

    name: str = "w1"
    alive: bool = True
    log: Path = Path("/dev/null")
    abilities: frozenset[str] = frozenset()
    sent: list[Any] = field(default_factory=list)

    def send(self, message: object) -> None:
        """Keep it."""
        self.sent.append(message)

    @property
    def last_id(self) -> int:
        """The id of the last operation that it was sent."""
        return int(next(m.id for m in reversed(self.sent) if isinstance(m, SendOp)))


@dataclass(frozen=True)
class Script:
    """A generator that says what it is given, in turn; `told` are the answers that it saw."""

    steps: tuple[Step, ...]
    told: list[Op | None] = field(default_factory=list)

    def step(self, last: Op | None, now_ns: int) -> tuple[Step, Generator]:
        """Say the next step."""
        self.told.append(last)
        return self.steps[0], replace(self, steps=self.steps[1:])


class Stage:
    """A controller with one seat."""

    def __init__(self, folder: Path) -> None:
        self.notes: list[Note] = []
        self.path = folder / "history.jsonl"
        self.controller = Controller(
            MonotonicClock(), HistoryWriter(self.path), self.notes.append, Traps(lambda _: None)
        )
        self.puppet = Puppet()
        self.controller.admit([cast("Worker", self.puppet)])
        self.say(Ready())

    def say(self, message: Any) -> None:
        self.controller.heard(cast("Worker", self.puppet), message)

    def kill(self, *, ordered: bool = True) -> None:
        """End the worker."""
        if ordered:
            self.controller.order_end("w1")
        self.puppet.alive = False
        self.controller.ended(cast("Worker", self.puppet), "it ended with signal SIGKILL")

    def start_again(self) -> None:
        """Put a new process into the seat; it is not connected yet."""
        self.puppet = Puppet()
        self.controller.seat_again(cast("Worker", self.puppet))

    def ops(self) -> Sequence[Op]:
        return read_history(self.path).ops

    def problems(self) -> list[str]:
        return [note.why or "" for note in self.notes if note.kind == "problem"]


def on_stage(folder: Path, generator: Generator, play: Callable[[Stage], Awaitable[None]]) -> Stage:
    """Play a scene while the controller runs the generator."""

    async def scene() -> Stage:
        stage = Stage(folder)
        running = asyncio.create_task(stage.controller.run({"w1": generator}, FOR_EVER_NS))
        await asyncio.sleep(0)
        await play(stage)
        running.cancel()
        await asyncio.wait({running})
        assert not stage.controller.broken.done()
        return stage

    return asyncio.run(scene())


READ = Invoke("read", "k0")


def test_what_was_open_in_both_lanes_is_info_and_the_generator_is_told(tmp_path: Path) -> None:
    script = Script((READ, READ))

    async def play(stage: Stage) -> None:
        stage.say(Ask(ask=1, f="renew", key="k0", token=7))
        stage.kill()
        assert script.told == [None]
        stage.start_again()
        assert script.told == [None]
        stage.say(Ready())

    stage = on_stage(tmp_path, script, play)
    assert [(op.type, op.f, op.process) for op in stage.ops()] == [
        ("invoke", "read", 0),
        ("invoke", "renew", 1),
        ("info", "read", 0),
        ("info", "renew", 1),
        ("invoke", "read", 2),
    ]
    told = script.told[1]
    assert told is not None
    assert (told.type, told.f) == ("info", "read")
    assert not stage.problems()


def test_lanes_with_nothing_open_get_new_numbers_too(tmp_path: Path) -> None:
    script = Script((READ, Wait(FOR_EVER_NS), READ))

    async def play(stage: Stage) -> None:
        stage.say(Done(id=stage.puppet.last_id, result="ok"))
        stage.kill()
        stage.start_again()
        stage.say(Ready())
        stage.say(Ask(ask=1, f="renew", key="k0", token=7))

    stage = on_stage(tmp_path, script, play)
    assert [(op.f, op.process) for op in stage.ops()[2:]] == [("read", 2), ("renew", 3)]


def test_what_it_held_it_no_longer_believes_and_its_generator_forgets(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        stage.say(Done(id=stage.puppet.last_id, result="ok", token=7))
        stage.say(Belief(key="k0", token=7, holds=True, left_s=2.0))
        assert stage.controller.workers_that("holder") == ["w1"]
        stage.kill()
        assert stage.controller.workers_that("holder") == []
        assert stage.controller.workers_that("waiter") == []
        stage.start_again()
        stage.say(Ready())
        assert stage.controller.workers_that("waiter") == ["w1"]

    spec = RunSpec(TargetSpec("lock"), TargetSpec("store"), workers=1, readers=0)
    stage = on_stage(tmp_path, Fencing().generators(spec)[0], play)
    assert [op.f for op in stage.ops() if op.type == "invoke"] == ["acquire", "read", "acquire"]
    beliefs = [(note.holds, note.token) for note in stage.notes if note.kind == "belief"]
    assert beliefs == [(True, 7), (False, 7)]


def test_an_end_that_nobody_ordered_is_a_problem_and_ends_the_generator(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        stage.kill(ordered=False)
        stage.start_again()
        stage.say(Ready())

    stage = on_stage(tmp_path, Script((READ, READ)), play)
    assert [op.type for op in stage.ops()] == ["invoke", "info"]
    assert "SIGKILL" in stage.problems()[0]


def test_one_that_fails_when_it_is_started_again_is_a_problem_of_the_run(tmp_path: Path) -> None:
    async def play(stage: Stage) -> None:
        stage.kill()
        stage.start_again()
        stage.say(Failed(error="no route"))

    stage = on_stage(tmp_path, Script((READ,)), play)
    assert "no route" in stage.problems()[0]
