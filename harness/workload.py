"""A workload: what the workers do, and how the history is judged.

A workload is made from options by its factory, `factory(**options)`; the factory's `Options` (a
pydantic model) documents and validates them.  Generators are pure; `check` is a pure function of
the evidence; neither sees a target or a process.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from harness.evidence import Evidence
from harness.generator import Generator
from harness.spec import RunSpec
from harness.target import Target
from harness.verdict import Verdict


@runtime_checkable
class Workload(Protocol):
    """The property under test, with the operations that exercise it."""

    name: str

    def generators(self, spec: RunSpec) -> Sequence[Generator]:
        """One generator for each name of `spec.worker_names()`, for the main phase."""
        ...

    def final(self, spec: RunSpec) -> Sequence[Generator]:
        """One generator a worker for the phase after all faults are healed (final reads)."""
        ...

    def check(self, evidence: Evidence) -> Verdict:
        """Judge; raises MalformedHistoryError, everything else is a bug (verdict: unknown)."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """Ability of a workload: say before anything is started that it cannot use these targets."""

    def unsuitable(self, lock: Target, store: Target) -> str | None:
        """Return what they lack, None when they will do."""
        ...
