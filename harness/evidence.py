"""Everything that a judgement may rest on, as it lies in the run folder.

Checkers are pure functions of this record.  Nothing live is in it, so `winkle check` gives the same
verdict from the folder alone, also when the harness was killed half-way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.history import History
from harness.note import Note
from harness.spec import RunSpec
from harness.target import Accept
from harness.window import Window


@dataclass(frozen=True)
class Problem:
    """Something that went wrong in the harness or an adapter (a dead worker, ...)."""

    text: str
    worker: str | None = None
    time_ns: int | None = None


@dataclass(frozen=True)
class Evidence:
    """A run as recorded.

    `spec` is None for a bare history file.  `store_log` is None where the resource keeps no log.
    `fence` is what the store does with tokens (`none`, `checked`, `guarded`), None when not known.
    `final_ns` is when the final phase began (all faults healed), `end_ns` when it was over; None
    when the run never got there.  `facts` holds versions and other recorded strings for the report,
    `servers` the names of the servers of each part (`lock`, `store`), empty when not known.
    """

    history: History
    spec: RunSpec | None = None
    notes: Sequence[Note] = ()
    windows: Sequence[Window] = ()
    store_log: Sequence[Accept] | None = None
    problems: Sequence[Problem] = ()
    fence: str | None = None
    final_ns: int | None = None
    facts: dict[str, str] = field(default_factory=dict)
    servers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    end_ns: int | None = None
