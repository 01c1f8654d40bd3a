"""What is said beside the history: phases and beliefs of workers, marks and problems of the run.

A phase is a point that a worker's program passes (`lease-checked`, `before-write`, ...).  A belief
is what its client thinks: do I hold this lock, and for how long by my own clock.  Both are stamped
by the controller when they arrive.  They explain a run and are never the proof of a safety
finding. A mark is a step of the run (`main`, `final`, `interrupted`, `end`); a problem is
something that went wrong in the harness or an adapter.
"""

from typing import Literal

import msgspec

# So begins the text of a problem that is what a fault left behind: see `Results.leftover`.
LEFTOVER = "leftover: "
MARKS = ("main", "final", "interrupted", "end")
QUEUED = "queued"
PHASES = (QUEUED, "acquired", "lease-checked", "before-write", "renewing")


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `notes.jsonl`.  `why` is the text of a mark, a problem, or a change of belief.

    `left_s`: for a belief that holds, the seconds that the worker thinks it has left, None when its
    client knows no end.  `op` is the index of the invocation during which a phase was passed.
    `stopped` says that the worker stopped itself at this phase, as it was asked to; `resumed` that
    it went on there.
    """

    time_ns: int
    kind: Literal["phase", "belief", "mark", "problem"]
    worker: str | None = None
    phase: str | None = None
    key: str | None = None
    token: int | None = None
    holds: bool | None = None
    left_s: float | None = None
    why: str | None = None
    op: int | None = None
    stopped: bool = False
    resumed: bool = False
