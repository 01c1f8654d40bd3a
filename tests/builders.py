"""Histories for tests, written down call by call.

A test says who called what and when, in milliseconds; the builder sorts the events, gives out
process numbers (a new one after an `info`) and pairs nothing itself, so that what it makes goes
through the same door as a recorded history.  Events of one instant keep the order in which the
calls were written down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.evidence import Evidence
from harness.history import Call, History
from harness.note import Note
from harness.op import Op, OpType
from harness.target import Accept
from harness.window import Grade, Proof, Window

MS = 1_000_000


def ns(ms: float) -> int:
    """Milliseconds as nanoseconds."""
    return round(ms * MS)


@dataclass
class Mark:
    """A call that was written down; `index` is known once the history was made."""

    worker: str
    lane: str
    f: str
    at: float
    ret: float | None
    type: OpType | None
    key: str | None
    value: Any
    token: int | None
    result: Any
    got: int | None
    error: str | None
    index: int = -1


@dataclass
class Script:
    """A history that grows by one method per operation.

    `ok` calls are the default; `fail="fenced"`, `info=True` or `ret=None` (never completed) say
    otherwise.  `at` and `ret` are milliseconds from the start of the run.
    """

    ttl_s: float | None = 2.0
    marks: list[Mark] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    log: list[Accept] | None = None

    def call(
        self,
        worker: str,
        f: str,
        at: float,
        ret: float | None,
        *,
        key: str | None = "k0",
        value: Any = None,
        token: int | None = None,
        result: Any = None,
        got: int | None = None,
        fail: str | None = None,
        info: bool = False,
        lane: str = "main",
    ) -> Mark:
        """Write down any call; the other methods only name the fields of their operation."""
        kind: OpType | None = None if ret is None else "fail" if fail else "info" if info else "ok"
        if kind != "ok":
            result, got = None, None
        error = fail or ("timeout" if info else None)
        mark = Mark(worker, lane, f, at, ret, kind, key, value, token, result, got, error)
        self.marks.append(mark)
        return mark

    def acquire(
        self,
        worker: str,
        token: int | None,
        at: float,
        ret: float | None,
        *,
        ttl_s: float | None = None,
        **rest: Any,
    ) -> Mark:
        """A try to take the lock; `token` is what an `ok` brings."""
        asked = {} if self.ttl_s is None else {"ttl_s": self.ttl_s}
        given = asked if ttl_s is None else {"ttl_s": ttl_s}
        return self.call(worker, "acquire", at, ret, value=asked, result=given, got=token, **rest)

    def renew(
        self, worker: str, token: int | None, at: float, ret: float | None, **rest: Any
    ) -> Mark:
        """A renewal by the worker's background thread."""
        return self.call(worker, "renew", at, ret, token=token, lane="renewal", **rest)

    def release(
        self, worker: str, token: int | None, at: float, ret: float | None, **rest: Any
    ) -> Mark:
        """A release."""
        return self.call(worker, "release", at, ret, token=token, **rest)

    def read(
        self,
        worker: str,
        at: float,
        ret: float | None,
        value: Any = None,
        token: int | None = None,
        **rest: Any,
    ) -> Mark:
        """A read that returned `value`, written with `token`; None: nothing was ever written."""
        return self.call(worker, "read", at, ret, result=value, got=token, **rest)

    def check(
        self,
        worker: str,
        token: int | None,
        at: float,
        ret: float | None,
        *,
        held: bool | None = True,
        **rest: Any,
    ) -> Mark:
        """A lease check with think time."""
        asked = {"ask": held is not None, "think_ms": 20}
        return self.call(
            worker, "check", at, ret, value=asked, token=token, result={"held": held}, **rest
        )

    def write(
        self,
        worker: str,
        value: Any,
        token: int | None,
        at: float,
        ret: float | None,
        *,
        over: tuple[Any, int | None] | None = None,
        **rest: Any,
    ) -> Mark:
        """A write; `over` is the value and token that the store says it overwrote."""
        result = None if over is None else {"over": {"value": over[0], "token": over[1]}}
        return self.call(worker, "write", at, ret, value=value, token=token, result=result, **rest)

    def belief(
        self,
        worker: str,
        at: float,
        *,
        holds: bool,
        token: int | None = None,
        key: str = "k0",
        left_s: float | None = None,
    ) -> None:
        """What a worker says that it believes."""
        self.notes.append(
            Note(
                time_ns=ns(at),
                worker=worker,
                kind="belief",
                key=key,
                token=token,
                holds=holds,
                left_s=left_s,
            )
        )

    def paused(self, worker: str, on: float, off: float, *, at: str = "lease-checked") -> None:
        """A pause of a worker, proven from `on` to `off`."""
        self.windows.append(
            Window(
                spec=0,
                kind="pause",
                who="holder",
                nodes=(worker,),
                at=at,
                requested_ns=ns(on),
                on_ns=ns(on),
                heal_ns=ns(off),
                off_ns=ns(off),
                grade="installed",
            )
        )

    def fault(
        self,
        kind: str,
        nodes: Sequence[str],
        on: float,
        off: float | None,
        *,
        cut: Sequence[str] = (),
        grade: Grade = "installed",
    ) -> None:
        """A fault from `on` to `off` (None: never seen to be gone); `cut` as a partition has it."""
        heal = None if off is None else ns(off)
        self.windows.append(
            Window(
                spec=len(self.windows),
                kind=kind,
                who="holder",
                nodes=tuple(nodes),
                at="1 s",
                requested_ns=ns(on),
                on_ns=ns(on) if grade == "installed" else None,
                heal_ns=heal,
                off_ns=heal,
                grade=grade,
                on=Proof(holds=True, text="", facts={"cut": list(cut)} if cut else {}),
            )
        )

    def history(self) -> History:
        """The history of all calls written down so far."""
        return History(_number(self.marks))

    def calls(self) -> Sequence[Call]:
        """The calls of that history."""
        return self.history().calls

    def evidence(
        self,
        *,
        final: float | None = None,
        end: float | None = None,
        fence: str | None = None,
        servers: Mapping[str, Sequence[str]] | None = None,
    ) -> Evidence:
        """All of it as a run; the final phase was from `final` to `end`."""
        return Evidence(
            history=self.history(),
            notes=sorted(self.notes, key=lambda note: note.time_ns),
            windows=self.windows,
            store_log=self.log,
            fence=fence,
            final_ns=None if final is None else ns(final),
            end_ns=None if end is None else ns(end),
            servers=servers or {},
        )


def _number(marks: Sequence[Mark]) -> list[Op]:
    """Sort the events, give each call a free process of its worker's lane, and note its index."""
    events = []
    for order, mark in enumerate(marks):
        events.append((ns(mark.at), order, 0, mark))
        if mark.ret is not None:
            events.append((ns(mark.ret), order, 1, mark))
    events.sort(key=lambda event: event[:3])
    free: dict[tuple[str, str], list[int]] = {}
    process: dict[int, int] = {}
    ops: list[Op] = []
    for time_ns, order, done, mark in events:
        idle = free.setdefault((mark.worker, mark.lane), [])
        if not done:
            process[order] = idle.pop() if idle else len(process) + 100
            mark.index = len(ops)
        elif mark.type != "info":
            idle.append(process[order])
        ops.append(_op(mark, process[order], time_ns, done=bool(done)))
    return ops


def _op(mark: Mark, process: int, time_ns: int, *, done: bool) -> Op:
    kind = mark.type if done else "invoke"
    assert kind is not None
    return Op(
        process=process,
        type=kind,
        f=mark.f,
        key=mark.key,
        value=mark.result if done else mark.value,
        token=mark.got if done else mark.token,
        time_ns=time_ns,
        error=mark.error if done else None,
        worker=mark.worker,
    )
