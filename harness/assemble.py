"""From a run's description to the objects that it names."""

from typing import Any

from harness.fault import Fault
from harness.plugins import make
from harness.spec import RunSpec
from harness.target import Target
from harness.workload import Workload


def merged(spec: RunSpec) -> dict[str, Any]:
    """Return the options of the one target that plays both parts."""
    return {**spec.lock.options, **spec.store.options}


def targets(spec: RunSpec) -> tuple[Target, Target]:
    """Return the lock target and the store target; the same object when one plays both parts.

    Raises UsageError.
    """
    if spec.one_target:
        both: Target = make("targets", spec.lock.name, merged(spec))
        return both, both
    lock: Target = make("targets", spec.lock.name, spec.lock.options)
    store: Target = make("targets", spec.store.name, spec.store.options)
    return lock, store


def workload(spec: RunSpec) -> Workload:
    """Return the workload.  Raises UsageError."""
    made: Workload = make("workloads", spec.workload, spec.options)
    return made


def faults(spec: RunSpec) -> list[Fault]:
    """Return one fault object for each fault of the schedule.  Raises UsageError."""
    return [make("faults", fault.kind, fault.options) for fault in spec.faults]
