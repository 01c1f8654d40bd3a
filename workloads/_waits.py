"""Waiting in the queue for a lock: which attempt keeps a place alive, and when its lease was lost.

A place in a queue hangs on a lease, which the waiting worker keeps alive with `keep`.  When the
service refuses that, the lease has ended, and with it the place: no grant can follow from it.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.history import Call
from workloads._words import done_ns, refusal


@dataclass(frozen=True)
class Waits:
    """The acquires of one key by worker, in the order of their invocations."""

    _acquires: Mapping[str, Sequence[Call]]

    @classmethod
    def of(cls, acquires: Iterable[Call]) -> "Waits":
        """Sort some acquires by worker."""
        mine: dict[str, list[Call]] = defaultdict(list)
        for call in acquires:
            mine[call.worker].append(call)
        return cls(mine)

    def of_keep(self, keep: Call) -> Call | None:
        """Return the acquire that was under way when a `keep` was asked for, if it is known."""
        mine = self._acquires.get(keep.worker, ())
        place = bisect_right(mine, keep.index, key=lambda call: call.index)
        if not place:
            return None
        last = mine[place - 1]
        over = last.ret_index is not None and last.ret_index < keep.index
        return None if over else last


def lost_in_queue(acquire: Call, keep: Call) -> bool:
    """Whether the service had called the lease of a place ended before it answered the acquire."""
    return (
        refusal(keep) == "not-holder"
        and acquire.ret_ns is not None
        and done_ns(keep) < done_ns(acquire)
    )


def lost_places(acquires: Iterable[Call], keeps: Iterable[Call]) -> dict[int, Call]:
    """Return the answered acquires, by index, whose lease had ended in the queue."""
    waits = Waits.of(acquires)
    lost = {}
    for keep in keeps:
        waited = waits.of_keep(keep)
        if waited is not None and lost_in_queue(waited, keep):
            lost[waited.index] = waited
    return lost
