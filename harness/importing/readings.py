"""What tools disagree about, and what a history says in each reading.

A failed compare-and-set: Porcupine takes it as proof that the value differed, Knossos as an
operation that did not happen.  A read of nil: Porcupine takes it as the value of a register that
was never written, Knossos lets it match anything.
"""

from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from harness.importing import maelstrom
from harness.op import Op, Process

CasFail = Literal["differed", "did-not-happen"]
CAS_FAILS: tuple[CasFail, ...] = get_args(CasFail)
NilRead = Literal["value", "anything"]
NIL_READS: tuple[NilRead, ...] = get_args(NilRead)
NIL = "reads of nil, which say nothing in this reading"
NOT_COMPARED = "failed compare-and-sets whose error is not about the value"
SILENT = "says-nothing"
Mute = Callable[[Op], str | None]


def mute(cas_fail: CasFail, nil_read: NilRead) -> Mute:
    """Return what tells of a completion why its operation says nothing; None when it speaks."""

    def why(done: Op) -> str | None:
        if done.f == "read":
            silent = nil_read == "anything" and done.type == "ok" and done.value is None
            return NIL if silent else None
        if done.f == "cas" and done.type == "fail" and cas_fail == "differed":
            return None if maelstrom.compared(done) else NOT_COMPARED
        return None

    return why


def silence(ops: list[Op], why: Mute) -> dict[str, int]:
    """Rename in place what says nothing, so that no model takes it for an operation of its own.

    Returns how many there are of each kind.  The places of the other events stay what they were.
    """
    counts: dict[str, int] = {}
    begun: dict[Process, int] = {}
    for i, op in enumerate(ops):
        if op.type == "invoke":
            begun[op.process] = i
        elif (text := why(op)) is not None and (start := begun.get(op.process)) is not None:
            ops[start] = msgspec.structs.replace(ops[start], f=SILENT)
            ops[i] = msgspec.structs.replace(op, f=SILENT)
            counts[text] = counts.get(text, 0) + 1
    return counts
