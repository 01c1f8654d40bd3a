"""What a fault may touch: nodes, network, servers, and an adversary.

A fault says *what* must be true (these packets do not pass; this process does not run; this clock
reads x); a backend says *how*.  Each ability is a small protocol of its own: a backend implements
those that it can, a fault asks for those that it needs and says which is missing.  All times are in
seconds, all sizes in bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.clocks import Skew
from harness.node import Node
from harness.shape import Shape
from harness.target import Cluster, Target

# Directed: packets from the first node to the second.
Pair = tuple[str, str]


class Network(Protocol):
    """Ability of a backend: stop packets between nodes, silently, in one direction at a time."""

    def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Let no packet pass over these pairs; all cuts of all owners add up.

        One atomic change; old and new connections alike.  With `reject` the sender is told (RST)
        instead of nothing.  A second cut of the same owner replaces its first.
        """
        ...

    def mend(self, owner: str) -> None:
        """Undo the cut of an owner; may come twice.  Pairs that another owner cuts stay cut."""
        ...

    async def passes(self, pairs: Sequence[Pair]) -> Mapping[Pair, bool]:
        """Send over each pair and return what arrived; never by asking the rules."""
        ...


class Links(Protocol):
    """Ability of a backend: make links bad, per directed pair."""

    def shape(self, owner: str, pairs: Iterable[Pair], shape: Shape) -> None:
        """Delay, lose, double or reorder what passes over these pairs."""
        ...

    def unshape(self, owner: str) -> None:
        """Undo the shaping of an owner; may come twice."""
        ...

    async def measure(self, pair: Pair) -> Mapping[str, float]:
        """Send a burst over a pair and return `delay_s` (median), `lost`, `doubled`, `swapped`."""
        ...


class Upkeep(Protocol):
    """Ability of a run: end what runs on a node, and start it again with its data."""

    async def end(self, node: str, *, kindly: bool = False) -> None:
        """Kill everything on a node (SIGKILL; `kindly`: SIGTERM), and wait until it is gone.

        The end is expected: it is no problem of the run.
        """
        ...

    async def start_again(self, node: str) -> None:
        """Start what ran there, on the data as it lies now, and wait until it answers or 30 s."""
        ...

    def running(self, node: str) -> bool:
        """Whether any process lives there."""
        ...

    def when_started(self, tell: Callable[[str], None]) -> None:
        """Call `tell(node)` each time that something was started again on a node."""
        ...


@runtime_checkable
class ClockSettable(Protocol):
    """Ability of a node: lie to its processes about the time, never to the machine."""

    def skew(self, skew: Skew) -> None:
        """Set the clocks of every process there; each call replaces the one before."""
        ...

    def true_clocks(self) -> None:
        """Let every process there see the true time again; may come twice."""
        ...

    async def read_clocks(self) -> Mapping[int, tuple[float, float]]:
        """Return (wall, monotonic) seconds as each process there reads them, less the true ones."""
        ...


@runtime_checkable
class Disk(Protocol):
    """Ability of a node: its data folder lies on a small file system of its own."""

    data: Path

    def fill(self) -> None:
        """Leave no room: the next write that needs a new block fails with ENOSPC."""
        ...

    def make_room(self) -> None:
        """Give the room back; may come twice."""
        ...

    def free_bytes(self) -> int:
        """Return the room that is left."""
        ...

    def copy_data(self, to: Path) -> None:
        """Copy the data as it lies now; the caller has stopped whoever writes."""
        ...

    def put_back(self, copy: Path) -> None:
        """Replace the data by a copy; the caller has ended whoever uses it."""
        ...


class Adversary(Protocol):
    """Ability of a run: one more worker, that does what it is told and is recorded like any."""

    async def perform(self, f: str, key: str, value: Any, token: int | None) -> str:
        """Perform one operation and return its outcome (`ok`, `fail`, `info`)."""
        ...

    def granted(self) -> Mapping[str, Sequence[int]]:
        """Return the tokens that were granted so far, by key, oldest first."""
        ...


@dataclass(frozen=True)
class Site:
    """The place of a run.  What is None cannot be done there.

    `lock_servers`, `store_servers`, `workers` are node names; `target` and `cluster` are the lock
    service's, for abilities such as membership.
    """

    nodes: Mapping[str, Node]
    lock_servers: Sequence[str] = ()
    store_servers: Sequence[str] = ()
    workers: Sequence[str] = ()
    ttl_s: float = 2.0
    network: Network | None = None
    links: Links | None = None
    upkeep: Upkeep | None = None
    adversary: Adversary | None = None
    target: Target | None = None
    cluster: Cluster | None = None
