"""A target that does nothing and a workload that never waits: what is left is the harness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.evidence import Evidence
from harness.generator import Done, Generator, Invoke, Step
from harness.op import Op
from harness.spec import RunSpec
from harness.target import Cluster, Grant, Server, Stored
from harness.verdict import Verdict


class NoopClient:
    """Answers at once: every lock is granted, every read finds nothing."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Grant."""
        return Grant(key, 1, ttl_s)

    def renew(self, grant: Grant) -> None:
        """Renew."""

    def release(self, grant: Grant) -> None:
        """Release."""

    def read(self, key: str) -> Stored | None:
        """Find nothing."""
        return None

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Forget it."""
        return None

    def close(self) -> None:
        """Do nothing."""


class Noop:
    """Both parts of a run, with no server at all."""

    name = "noop"
    fence = "none"

    def servers(self) -> Sequence[Server]:
        """Start nothing."""
        return []

    def lock(self, cluster: Cluster, timeout_s: float) -> NoopClient:
        """Make a client."""
        return NoopClient()

    def store(self, cluster: Cluster, timeout_s: float) -> NoopClient:
        """Make a client."""
        return NoopClient()


@dataclass(frozen=True)
class Reads:
    """Reads as fast as they are answered, `left` times."""

    left: int

    def step(self, last: Op | None, now_ns: int) -> tuple[Step, Generator]:
        """Read again."""
        if self.left == 0:
            return Done(), self
        return Invoke("read", "k0"), Reads(self.left - 1)


@dataclass(frozen=True)
class Holds:
    """Takes the lock once, then checks its lease for ever: a holder to be paused at a phase."""

    think_ms: int
    held: bool = False

    def step(self, last: Op | None, now_ns: int) -> tuple[Step, Generator]:
        """Take the lock, then check."""
        if not self.held:
            return Invoke("acquire", "k0", {"ttl_s": 3600.0}), Holds(self.think_ms, held=True)
        return Invoke("check", "k0", {"ask": False, "think_ms": self.think_ms}, token=1), self


class Flood:
    """Workers that read without a pause; judged by how many reads there were."""

    name = "flood"

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """Read for the whole main phase."""
        return [Reads(-1) for _ in spec.worker_names()]

    def final(self, spec: RunSpec) -> Sequence[Generator]:
        """Read once more."""
        return [Reads(1) for _ in spec.worker_names()]

    def check(self, evidence: Evidence) -> Verdict:
        """Count."""
        calls = evidence.history.calls
        return Verdict(verdict="pass", headline="counted", stats={"calls": len(calls)})


class Hold(Flood):
    """Workers that hold a lock, for measuring faults."""

    name = "hold"

    def __init__(self, think_ms: int = 1) -> None:
        self._think_ms = think_ms

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """Hold for the whole main phase."""
        return [Holds(self._think_ms) for _ in spec.worker_names()]
