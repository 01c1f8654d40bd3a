"""Generators: pure, seeded functions that say what a worker does next.

A generator is a value.  `step` receives the last completed op of its worker (None at the start or
after a wait) and the time, and returns what to do and the generator that goes on.  It never sees
other workers, reads no clock and draws from `harness.rng` only, so the same seed and the same
answers give the same operations, and a test can drive it without any process.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from harness.op import Op


@dataclass(frozen=True)
class Invoke:
    """Send this operation to the worker."""

    f: str
    key: str | None = None
    value: Any = None
    token: int | None = None


@dataclass(frozen=True)
class Wait:
    """Do nothing until `until_ns` (time of the run)."""

    until_ns: int


@dataclass(frozen=True)
class Done:
    """This worker has nothing more to do in this phase."""


Step = Invoke | Wait | Done


class Generator(Protocol):
    """What one worker does."""

    def step(self, last: Op | None, now_ns: int) -> "tuple[Step, Generator]":
        """Return the next step and the generator after it.

        `last` is the completion of the operation that this generator asked for before; after a
        wait it is None.  A completion of type `info` means that nobody knows.
        """
        ...


@runtime_checkable
class Forgetful(Protocol):
    """Ability of a generator: go on with a worker that was started again and holds nothing."""

    def forget(self) -> Generator:
        """Return the generator without the locks that it thinks its worker holds.

        What must never come twice (values that it wrote) it remembers.
        """
        ...
