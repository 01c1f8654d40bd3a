"""The fenced register by its definition, for tiny histories: try every order.

State: the highest accepted token and the value.  A write is accepted if and only if its token is
not lower than the highest; refused writes are left out.  An operation that ended before another
began comes before it; one with unknown outcome may come at any later place or nowhere.  What a
write says that it overwrote is a read during that write.  Deliberately naive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from harness.history import Call


@dataclass(frozen=True)
class Step:
    """One operation of the model; `must`: it certainly took effect."""

    kind: str
    value: Any
    token: int | None
    call: float
    ret: float
    must: bool


def write_step(call: Call, *, must: bool) -> Step:
    """A write as a step."""
    ret = inf if call.ret_ns is None else call.ret_ns
    return Step("write", call.value, call.token, call.call_ns, ret, must)


def sight_steps(call: Call) -> list[Step]:
    """What a call saw, as reads."""
    if call.outcome != "ok":
        return []
    assert call.ret_ns is not None
    if call.f == "read":
        return [Step("read", call.result, call.result_token, call.call_ns, call.ret_ns, must=True)]
    if call.f == "write" and call.result:
        over = call.result["over"]
        return [Step("read", over["value"], over["token"], call.call_ns, call.ret_ns, must=True)]
    return []


def steps(calls: Sequence[Call]) -> list[Step]:
    """The steps of a history of reads and writes."""
    found = []
    for call in calls:
        if call.f == "write" and call.outcome != "fail":
            found.append(write_step(call, must=call.outcome == "ok"))
        found += sight_steps(call)
    return found


def possible(listed: Sequence[Step]) -> bool:
    """Whether some legal order of the steps exists."""
    dead: set[tuple[frozenset[int], float, Any]] = set()

    def go(left: frozenset[int], highest: float, value: Any) -> bool:
        if not any(listed[i].must for i in left):
            return True
        if (left, highest, value) in dead:
            return False
        first_end = min(listed[i].ret for i in left)
        for i in left:
            step = listed[i]
            if step.call > first_end:
                continue
            rest = left - {i}
            if step.kind == "read":
                fits = step.value == value and step.token in (None, _told(highest))
                if fits and go(rest, highest, value):
                    return True
            elif (step.token or 0) >= highest and go(rest, step.token or 0, step.value):
                return True
        dead.add((left, highest, value))
        return False

    return go(frozenset(range(len(listed))), -inf, None)


def _told(highest: float) -> int | None:
    return None if highest == -inf else int(highest)
