"""`winkle replay`: the schedule of a run as it was executed, as a schedule of its own.

What was random, a role or a repetition in the first run is fixed here: each window becomes a fault
of its own, at its time, on its nodes, at its phase.  The workers draw from the same seed, so they
ask for the same things; when the system answers is its own affair.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.folder import RunFolder
from harness.runfile import read_file
from harness.spec import FaultSpec, RunSpec
from harness.units import Duration
from harness.window import Window

# Roles that mean the same nodes in every run of the same target.
_FIXED = ("all", "store", "minority", "majority")


def replayed(path: Path) -> RunSpec:
    """Return the run that repeats the schedule of a run folder.  Raises UsageError."""
    folder = RunFolder(path)
    spec = read_file(folder.run_file)  # with its targets: what cannot run is refused now
    main_ns = folder.marks().get("main")
    if main_ns is None:
        raise UsageError(f"{path}: this run never came to its main phase: there is no schedule")
    return dataclasses.replace(spec, faults=schedule(spec, folder.windows(), main_ns))


def schedule(spec: RunSpec, windows: Sequence[Window], main_ns: int) -> tuple[FaultSpec, ...]:
    """Return one fault a window, in the order in which they began; pure."""
    begun = sorted((w for w in windows if w.nodes), key=lambda w: w.requested_ns)
    return tuple(_fixed(spec, window, main_ns) for window in begun)


def _fixed(spec: RunSpec, window: Window, main_ns: int) -> FaultSpec:
    fault = spec.faults[window.spec]
    last_s = spec.time_s - fault.length.seconds(spec.ttl_s)
    at = Duration(round(max(0.0, min((window.requested_ns - main_ns) / 1e9, last_s)), 3))
    who = window.who if window.who in _FIXED else window.nodes[0]
    phase = fault.phase
    return dataclasses.replace(
        fault,
        who=who,
        at=None if phase else at,
        after=at if phase else None,
        random_count=None,
        every=None,
        count=1 if phase else None,
    )
