"""One fault as executed: requested, observed on, observed off, with the evidence.

The times come from the controller's clock.  A fault is `installed` from the first instant at which
a probe that does not use the fault's own mechanism saw it in force, to the last such instant; it
is `not-effective` when the probe saw that it was not, `indeterminate` when no probe could tell.
"""

from typing import Any, Literal

import msgspec

Grade = Literal["installed", "not-effective", "indeterminate"]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe saw: `holds` None means that it could not tell; `text` is for people.

    `age_s` is how long before the answer it was seen: a probe that waits in vain for a packet knows
    in the end that it did not pass when it was sent.
    """

    holds: bool | None
    text: str
    facts: dict[str, Any] = {}
    age_s: float = 0.0


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `faults.jsonl`.

    `spec` is the index of the fault in the run file; `who` the role that was asked for and `nodes`
    the nodes it turned out to be when the fault began.  `at` is the phase, time or rule that
    triggered it, `op` the index of the operation during which a worker stopped itself.
    `heal_ns` is when the undo was ordered.
    """

    spec: int
    kind: str
    who: str
    nodes: tuple[str, ...]
    at: str
    op: int | None = None
    requested_ns: int
    on_ns: int | None = None
    heal_ns: int | None = None
    off_ns: int | None = None
    grade: Grade
    on: Proof | None = None
    off: Proof | None = None
    text: str = ""

    def covers(self, time_ns: int) -> bool:
        """Whether the fault was proven to be in force at that time."""
        return (
            self.grade == "installed"
            and self.on_ns is not None
            and self.on_ns <= time_ns
            and (self.heal_ns is None or time_ns <= self.heal_ns)
        )
