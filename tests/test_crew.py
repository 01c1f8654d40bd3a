"""Workers that misbehave: what they had open becomes info, with the reason."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from harness.clock import MonotonicClock
from harness.controller import Controller
from harness.crew import Worker
from harness.errors import HarnessError
from harness.generator import Done, Generator, Invoke, Step
from harness.history import HistoryWriter, read_history
from harness.local.child import Child
from harness.node import ProcessId
from harness.note import Note
from harness.op import Op
from harness.trap import Traps

PRELUDE = """
import json, os, signal, sys
def say(**m): print(json.dumps(m), flush=True)
hello = json.loads(input()); say(type="ready")
"""


class PlainNode:
    """A node that is just this machine: enough for processes that open no socket."""

    name = "w1"
    address = "127.0.0.1"

    def __init__(self, data: Path) -> None:
        self.data = data

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> Child:
        """Start a process with pipes."""
        import os

        with log.open("ab") as file:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )
        process.returncode = 0
        assert process.stdin is not None
        assert process.stdout is not None
        spawned = Child(
            process.pid, os.dup(process.stdin.fileno()), os.dup(process.stdout.fileno())
        )
        process.stdin.close()
        process.stdout.close()
        return spawned

    def processes(self) -> list[ProcessId]:
        """Nothing is asked of it."""
        return []


class Reads:
    """Reads twice."""

    def __init__(self, left: int = 2) -> None:
        self.left = left

    def step(self, last: Op | None, now_ns: int) -> tuple[Step, Generator]:
        """Read, or be done."""
        return (Invoke("read", "k0"), Reads(self.left - 1)) if self.left else (Done(), self)


async def drive(tmp_path: Path, script: str) -> tuple[list[Op], list[Note]]:
    notes: list[Note] = []
    with HistoryWriter(tmp_path / "history.jsonl") as history:
        controller = Controller(MonotonicClock(), history, notes.append, Traps(lambda _: None))
        worker = Worker("w1", PlainNode(tmp_path), tmp_path / "w1.log", controller)
        controller.admit([worker])
        worker.start([sys.executable, "-S", "-c", PRELUDE + script], asyncio.get_running_loop())
        from harness.protocol import Hello

        worker.send(Hello(worker="w1", lock={}, store={}, servers={}, ttl_s=1.0, op_timeout_s=1.0))
        await controller.all_ready(30.0)
        until_ns = controller.clock.now_ns() + 30_000_000_000
        await controller.run({"w1": Reads()}, until_ns)
    return list(read_history(tmp_path / "history.jsonl").ops), notes


def problems(notes: list[Note]) -> list[str]:
    return [note.why or "" for note in notes if note.kind == "problem"]


def test_a_good_worker(tmp_path: Path) -> None:
    script = """
for line in sys.stdin:
    op = json.loads(line); say(type="done", id=op["id"], result="ok", value="v", token=op["id"])
"""
    ops, notes = asyncio.run(drive(tmp_path, script))
    assert [op.type for op in ops] == ["invoke", "ok", "invoke", "ok"]
    assert not problems(notes)


def test_an_info_retires_the_process(tmp_path: Path) -> None:
    script = """
for line in sys.stdin:
    op = json.loads(line); say(type="done", id=op["id"], result="info", error="time-out")
"""
    ops, _ = asyncio.run(drive(tmp_path, script))
    assert [op.process for op in ops] == [0, 0, 2, 2]


@pytest.mark.parametrize(
    "rubbish",
    [
        "print('Traceback: hello', flush=True)",
        "os.write(1, b'\\xff\\xfe\\n')",
        'say(type="done", id="seven", result="ok")',
        'say(type="surprise")',
        'say(type="done", id=0, result="maybe")',
    ],
)
def test_rubbish_ends_the_worker_and_is_quoted(tmp_path: Path, rubbish: str) -> None:
    script = f"print('last words', file=sys.stderr, flush=True); input(); {rubbish}; input()"
    ops, notes = asyncio.run(drive(tmp_path, script))
    assert [op.type for op in ops] == ["invoke", "info"]
    assert "no message" in (ops[1].error or "")
    assert "last words" in problems(notes)[0]


@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("raise RuntimeError('boom')", "exit code 1"),
    ],
)
def test_a_dead_worker_leaves_its_operation_unknown(tmp_path: Path, death: str, how: str) -> None:
    ops, notes = asyncio.run(drive(tmp_path, f"input(); {death}"))
    assert [op.type for op in ops] == ["invoke", "info"]
    assert how in (ops[1].error or "")
    assert how in problems(notes)[0]


def test_an_answer_given_before_death_counts(tmp_path: Path) -> None:
    script = """
op = json.loads(input()); say(type="done", id=op["id"], result="ok"); os._exit(0)
"""
    ops, _ = asyncio.run(drive(tmp_path, script))
    assert ops[1].type == "ok"


def test_answers_out_of_turn_are_problems(tmp_path: Path) -> None:
    script = """
for line in sys.stdin:
    op = json.loads(line)
    say(type="done", id=999, result="ok"); say(type="ask", ask=1, f="write")
    say(type="done", id=op["id"], result="ok")
"""
    ops, notes = asyncio.run(drive(tmp_path, script))
    assert [op.type for op in ops] == ["invoke", "ok", "invoke", "ok"]
    assert "#999" in problems(notes)[0]
    assert "out of turn" in problems(notes)[1]


def test_a_renewal_is_recorded_before_it_is_allowed(tmp_path: Path) -> None:
    script = """
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "op":
        say(type="ask", ask=5, f="renew", key="k0", token=7); waiting = m["id"]
    else:
        say(type="done", id=m["id"], result="ok"); say(type="done", id=waiting, result="ok")
"""
    ops, _ = asyncio.run(drive(tmp_path, script))
    assert [(op.f, op.type, op.process) for op in ops[:4]] == [
        ("read", "invoke", 0),
        ("renew", "invoke", 1),
        ("renew", "ok", 1),
        ("read", "ok", 0),
    ]
    assert ops[1].token == 7


def test_a_worker_that_never_gets_ready_ends_the_run_with_its_words(tmp_path: Path) -> None:
    script = 'print("no route", file=sys.stderr, flush=True); sys.exit(1)'
    prelude = PRELUDE.replace('say(type="ready")', "")

    async def start() -> None:
        with HistoryWriter(tmp_path / "history.jsonl") as history:
            notes: list[Note] = []
            controller = Controller(MonotonicClock(), history, notes.append, Traps(lambda _: None))
            worker = Worker("w1", PlainNode(tmp_path), tmp_path / "w1.log", controller)
            controller.admit([worker])
            argv = [sys.executable, "-S", "-c", prelude.replace("json.loads(input())", "0")]
            worker.start([*argv[:-1], argv[-1] + script], asyncio.get_running_loop())
            await controller.all_ready(30.0)

    with pytest.raises(HarnessError, match="no route"):
        asyncio.run(start())


def test_a_full_disk_ends_the_run_with_a_message(tmp_path: Path) -> None:
    script = """
for line in sys.stdin:
    op = json.loads(line); say(type="done", id=op["id"], result="ok")
"""

    async def start() -> None:
        notes: list[Note] = []
        history = HistoryWriter(Path("/dev/full"))
        controller = Controller(MonotonicClock(), history, notes.append, Traps(lambda _: None))
        worker = Worker("w1", PlainNode(tmp_path), tmp_path / "w1.log", controller)
        controller.admit([worker])
        argv = [sys.executable, "-S", "-c", PRELUDE + script]
        worker.start(argv, asyncio.get_running_loop())
        from harness.protocol import Hello

        worker.send(Hello(worker="w1", lock={}, store={}, servers={}, ttl_s=1.0, op_timeout_s=1.0))
        await controller.all_ready(30.0)
        await controller.run({"w1": Reads()}, controller.clock.now_ns() + 30_000_000_000)

    with pytest.raises(HarnessError, match="No space left"):
        asyncio.run(start())
