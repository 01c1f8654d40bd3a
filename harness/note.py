"""What workers say beside their answers: phases and beliefs, and who asked for what.

A phase is a point that a worker's program passes (`lease-checked`, `before-write`, ...).  A belief
is what its client thinks: do I hold this lock, and for how long by my own clock.  Both are stamped
by the controller when they arrive.  They explain a run and are never the proof of a safety finding.
"""

from typing import Literal

import msgspec

PHASES = ("acquired", "lease-checked", "before-write", "renewing")


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `notes.jsonl`.

    `left_s`: for a belief that holds, the seconds that the worker thinks it has left, None when its
    client knows no end.  `op` is the index of the invocation during which a phase was passed.
    `stopped` says that the worker stopped itself at this phase, as it was asked to.
    """

    time_ns: int
    worker: str
    kind: Literal["phase", "belief"]
    phase: str | None = None
    key: str | None = None
    token: int | None = None
    holds: bool | None = None
    left_s: float | None = None
    why: str | None = None
    op: int | None = None
    stopped: bool = False
