"""The ordered events of one run, on disk and in memory.

On disk a history is JSON lines, append-only: the line of an invocation is written before the
operation is sent, so whatever dies, no operation is lost.  A file that ends in the middle of a line
is a history that was cut there: it is judged up to the cut.  In memory the events are paired into
calls; a call without completion stays open, like one that ended in `info`.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from harness.errors import MalformedHistoryError, RecordError
from harness.op import Op, Process, decode, encode

Outcome = Literal["ok", "fail", "info", "open"]


@dataclass(frozen=True, slots=True)
class Call:
    """An invocation with its completion.

    `index` and `ret_index` are positions in the history (the op numbers that reports show);
    `ret_ns` is None unless the outcome is `ok` or `fail`: an unknown outcome never ends.
    `value`, `token`: as invoked; `result`, `result_token`: as completed.
    """

    index: int
    process: Process
    worker: str
    f: str
    key: str | None
    value: Any
    token: int | None
    call_ns: int
    outcome: Outcome
    ret_index: int | None
    ret_ns: int | None
    result: Any
    result_token: int | None
    error: str | None

    def precedes(self, other: "Call") -> bool:
        """Whether this call certainly ended before `other` began (equal times are concurrent)."""
        return self.ret_ns is not None and self.ret_ns < other.call_ns


@dataclass(frozen=True)
class History:
    """The ops of one run in order; `cut` says that the file ended in the middle of a line."""

    ops: Sequence[Op]
    cut: bool = False

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls in the order of their invocations.  Raises MalformedHistoryError."""
        return tuple(_pair(self.ops))

    @property
    def end_ns(self) -> int:
        """The time of the last event, 0 when there is none."""
        return self.ops[-1].time_ns if self.ops else 0


def completions(ops: Sequence[Op]) -> dict[int, int]:
    """Return the position of the completion of each completed invocation, by position.

    Raises MalformedHistoryError.
    """
    pending: dict[Process, int] = {}
    retired: set[Process] = set()
    completion: dict[int, int] = {}
    last_ns = 0
    for i, op in enumerate(ops):
        if op.time_ns < last_ns:
            raise MalformedHistoryError(i + 1, f"time goes back from {last_ns} to {op.time_ns} ns")
        last_ns = op.time_ns
        if op.type == "invoke":
            if op.process in retired:
                raise MalformedHistoryError(
                    i + 1,
                    f"process {op.process} invokes again after an info: "
                    "its first operation may still run",
                )
            if op.process in pending:
                raise MalformedHistoryError(
                    i + 1, f"process {op.process} invokes while its last operation is open"
                )
            pending[op.process] = i
            continue
        start = pending.pop(op.process, None)
        if start is None:
            raise MalformedHistoryError(
                i + 1, f"process {op.process} completes {op.f} without an invocation"
            )
        if ops[start].f != op.f or (op.key is not None and op.key != ops[start].key):
            raise MalformedHistoryError(
                i + 1,
                f"process {op.process} completes {op.f} on {op.key} "
                f"but invoked {ops[start].f} on {ops[start].key}",
            )
        if op.type == "info":
            retired.add(op.process)
        completion[start] = i
    return completion


def _pair(ops: Sequence[Op]) -> Iterable[Call]:
    completion = completions(ops)
    for i, op in enumerate(ops):
        if op.type == "invoke":
            yield _call(ops, i, completion.get(i))


def _call(ops: Sequence[Op], index: int, ret_index: int | None) -> Call:
    op = ops[index]
    done = None if ret_index is None else ops[ret_index]
    certain = done is not None and done.type in ("ok", "fail")
    outcome: Outcome = "open"
    if done is not None:
        outcome = done.type if done.type != "invoke" else "open"
    return Call(
        index=index,
        process=op.process,
        worker=op.worker or str(op.process),
        f=op.f,
        key=op.key,
        value=op.value,
        token=op.token,
        call_ns=op.time_ns,
        outcome=outcome,
        ret_index=ret_index,
        ret_ns=done.time_ns if done is not None and certain else None,
        result=done.value if done is not None else None,
        result_token=done.token if done is not None else None,
        error=done.error if done is not None else None,
    )


class HistoryWriter:
    """Appends ops to a file; each op reaches the operating system before `append` returns.

    The page cache survives the death of any process; a power cut of the controller's machine is
    outside of what a run claims, so there is no fsync an op.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.count = 0

    def append(self, op: Op) -> int:
        """Write one op and return its index.  Raises RecordError (disk full, read-only)."""
        self.write(encode(op))
        index = self.count
        self.count += 1
        return index

    def write(self, data: bytes) -> None:
        """Write all of `data` or raise RecordError; a short write is continued."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise RecordError(f"the record cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def split_lines(data: bytes) -> tuple[list[bytes], bool]:
    """Return the complete lines of an append-only file, and whether its tail was cut off."""
    lines = data.split(b"\n")
    tail = lines.pop()
    return lines, bool(tail)


def read_history(path: Path) -> History:
    """Read a history file.  Raises OSError, and MalformedHistoryError for a line that is no op."""
    lines, cut = split_lines(path.read_bytes())
    ops = []
    for number, line in enumerate(lines, start=1):
        try:
            ops.append(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedHistoryError(number, f"no op: {error}") from error
    return History(ops, cut)
