"""All that describes one run, as plain data: what `run.yaml` holds and what repeats the run.

The records here are the validated form; `harness.runfile` reads them from YAML and flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.brackets import shown_scalar
from harness.units import Duration


@dataclass(frozen=True)
class TargetSpec:
    """A target by name (`etcd`), file (`./my.py:NAME`) or import (`pkg.mod:attr`), with options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = ",".join(f"{key}={shown_scalar(value)}" for key, value in self.options.items())
        return f"{self.name}[{shown}]" if shown else self.name


@dataclass(frozen=True)
class FaultSpec:
    """One fault of the schedule.

    `who` is a role (`holder`, `waiter`, `leader`, ...) or a node.  Exactly one trigger is set: `at`
    (a time), `phase` (which counts only from the time `after` on), or `random_count` (that many
    random times of the run).  With `every` the fault comes again, that long after the end of the
    window before; `count` bounds how often.  `length` is how long it stays.  `options` belong to
    the kind.
    """

    kind: str
    who: str
    length: Duration
    at: Duration | None = None
    phase: str | None = None
    random_count: int | None = None
    after: Duration | None = None
    every: Duration | None = None
    count: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def trigger(self) -> str:
        """What starts this fault, in words."""
        if self.phase is not None:
            return self.phase
        if self.random_count is not None:
            return "a random time"
        return str(self.at)

    def __str__(self) -> str:
        when = f"at=random,count={self.random_count}" if self.random_count else f"at={self.trigger}"
        every = f",every={self.every}" if self.every else ""
        count = f",count={self.count}" if self.count and not self.random_count else ""
        after = f",after={self.after}" if self.after else ""
        rest = "".join(f",{key}={shown_scalar(value)}" for key, value in self.options.items())
        return f"{self.kind}:who={self.who},{when}{after},for={self.length}{every}{count}{rest}"


@dataclass(frozen=True)
class RunSpec:
    """One run.  Times in seconds; `options` are the workload's, validated by it.

    `inventory` is the file with the hosts of the SSH backend; `compose` that of a user's own system
    for the Docker backend, and `servers` a pattern for the services in it that are servers.
    """

    lock: TargetSpec
    store: TargetSpec
    workload: str = "fencing"
    options: Mapping[str, Any] = field(default_factory=dict)
    faults: tuple[FaultSpec, ...] = ()
    backend: str = "local"
    workers: int = 3
    readers: int = 1
    ttl_s: float = 2.0
    time_s: float = 15.0
    op_timeout_s: float = 1.0
    seed: int = 0
    stop_on_failure: bool = False
    inventory: str | None = None
    compose: str | None = None
    servers: str = "*"

    @property
    def progress_s(self) -> float:
        """Seconds within which the system must make progress after all faults were healed."""
        return max(10.0, 5 * self.ttl_s)

    @property
    def one_target(self) -> bool:
        """Whether one target plays both parts: it is started once, with both sets of options."""
        return self.lock.name == self.store.name

    def worker_names(self) -> list[str]:
        """The names of all worker nodes: contenders `w1..`, then readers `r1..`."""
        return [f"w{i + 1}" for i in range(self.workers)] + [
            f"r{i + 1}" for i in range(self.readers)
        ]
