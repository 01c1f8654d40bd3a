"""What a fault may touch: nodes, network, servers, and an adversary.

A fault says *what* must be true (these packets do not pass; this process does not run; this clock
reads x); a backend says *how*.  Each ability is a small protocol of its own: a backend implements
those that it can, a fault asks for those that it needs and says which is missing.  All times are in
seconds, all sizes in bytes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from harness.clocks import Applied, Moment, Readings, Skew
from harness.node import Node
from harness.shape import Shape
from harness.target import Cluster, Server, Target
from harness.trick import Hit, Part, Trick

# Directed: packets from the first node to the second.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Passage:
    """What a probe got through from one node to another.

    `old` is a connection that stood before the cut, `new` one that was asked for just now; None
    means that it says nothing: not tried, or the way back is cut and TCP needs both.  `refused`:
    the sender was told that it may not.  `sent_s` is when the last of it was sent, by the monotonic
    clock.
    """

    datagram: bool
    old: bool | None = None
    new: bool | None = None
    refused: bool = False
    sent_s: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether everything got through that could."""
        return self.datagram and self.old is not False and self.new is not False

    @property
    def nothing(self) -> bool:
        """Whether nothing at all got through."""
        return not (self.datagram or self.old or self.new)


class Network(Protocol):
    """Ability of a backend: stop packets between nodes, in one direction at a time."""

    def unavailable(self, *, reject: bool = False) -> str | None:
        """Return None when this place can do it, else why not, found by trying."""
        ...

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        """Let no packet pass over these pairs; all cuts of all owners add up.

        One atomic change; old and new connections alike; what is under way is lost.  With `reject`
        the sender is told (a TCP reset), else it hears nothing.  A second cut of the same owner
        replaces its first.
        """
        ...

    async def mend(self, owner: str) -> None:
        """Undo the cut of an owner; may come twice.  Pairs that another owner cuts stay cut."""
        ...

    def cut_now(self) -> frozenset[Pair]:
        """All pairs that any owner has ordered cut."""
        ...

    def cut_since(self, since_s: float) -> frozenset[Pair]:
        """All pairs that were cut at any time since the monotonic clock showed `since_s`."""
        ...

    async def passes(self, pairs: Sequence[Pair], more_s: float = 0.0) -> Mapping[Pair, Passage]:
        """Send over each pair and return what arrived; never by asking the rules.

        Takes a few milliseconds, and `more_s` when something does not arrive: what slow links need
        on top.  What nobody cuts is waited for longer, half a second.
        """
        ...

    async def stopped_packets(self) -> int:
        """Return how many packets were stopped so far, as counted by whatever stops them."""
        ...


@dataclass(frozen=True)
class Burst:
    """What became of a burst of numbered datagrams over a pair.

    `delay_s` is the median of the travel times, `least_s` the shortest and `spread_s` their range;
    None when none arrived.
    `lost`, `doubled` and `swapped` (arrived after a later one) count datagrams; `rate_bytes_s` is
    the throughput at the receiver, None with less than two.
    """

    sent: int
    delay_s: float | None
    least_s: float | None
    spread_s: float | None
    lost: int
    doubled: int
    swapped: int
    rate_bytes_s: float | None


class Links(Protocol):
    """Ability of a backend: make links bad, per directed pair."""

    def unavailable(self) -> str | None:
        """Return None when this place can do it, else why not, found by trying."""
        ...

    async def shape(self, owner: str, pairs: Iterable[Pair], shape: Shape) -> None:
        """Delay, lose, double or reorder what passes over these pairs.

        What several owners want of one pair adds up (`harness.shape.together`).  A second order of
        the same owner replaces its first.
        """
        ...

    async def unshape(self, owner: str) -> None:
        """Undo the shaping of an owner, and deliver what is held; may come twice."""
        ...

    def shaped_now(self, but: str | None = None) -> Mapping[Pair, Shape]:
        """All pairs that any owner has ordered bad, with all that was ordered; `but` one owner."""
        ...

    async def measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        """Send `count` datagrams over each pair, `gap_s` apart, and wait `wait_s` for the last."""
        ...


class Messages(Protocol):
    """Ability of a run: play tricks on messages, by proxies between workers and servers."""

    def unavailable(self, part: Part) -> str | None:
        """Return None when a proxy stands before each server of a part, else why not.

        Asked before workers are told their servers' addresses: who does not ask has no proxy.
        """
        ...

    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        """Play a trick on the next messages of some workers, or of all with some servers."""
        ...

    async def disarm(self, owner: str) -> None:
        """Play it no longer, and end the connections that it spoilt; may come twice."""
        ...

    async def hits(self, owner: str) -> Sequence[Hit]:
        """Return what happened so far to the messages that an owner meant."""
        ...


class Upkeep(Protocol):
    """Ability of a run: end what runs on a node, and start it again with its data.

    Several owners may keep a node down; it runs again when the last of them lets it.
    """

    async def end(self, owner: str, node: str, *, kindly: bool = False) -> None:
        """Kill everything on a node, keep it down, and wait until it is gone or 10 s are over.

        The end is expected: it is no problem of the run.  `kindly`: SIGTERM, and SIGKILL after 5 s.
        """
        ...

    async def start_again(self, owner: str, node: str, server: Server | None = None) -> None:
        """Start what ran there, on the data as it lies now, and wait until it answers or 30 s.

        Nothing is started while something runs there or another owner keeps the node down.  A
        server may be started otherwise than before: as `server` says.  What this owner excused
        until now may be ending just now: it is watched for a second more, and started if it ends.
        """
        ...

    def kept_down(self, node: str) -> bool:
        """Whether any owner keeps the node down now."""
        ...

    def excuse(self, owner: str, node: str) -> None:
        """Until `start_again` of this owner, an end by itself is no problem of the run."""
        ...

    def excused(self, node: str) -> bool:
        """Whether anybody excuses an end by itself there now."""
        ...

    def blame(self, node: str, fault: str) -> None:
        """From now on, an end by itself is what `fault` left behind, and told as that."""
        ...

    def running(self, node: str) -> bool:
        """Whether any process lives there."""
        ...

    async def knock(self, node: str) -> str:
        """Connect from outside: `accepted`, `refused`, `silent`, or `no port` for a worker."""
        ...

    async def trouble(self, node: str) -> str | None:
        """Return None when what belongs there runs and answers, else why not, with its log."""
        ...

    def when_started(self, tell: Callable[[str], None]) -> None:
        """Call `tell(node)` each time, as soon as something was started again on a node."""
        ...


class Clocks(Protocol):
    """The clocks of the processes of one node: they are lied to, never the machine.

    Each lie has an owner.  For each clock the one that was told last counts; when it is taken back,
    the one before it counts again.
    """

    def unavailable(self) -> str | None:
        """Return why no clock can be set here at all, None when it can."""
        ...

    def up_s(self) -> float:
        """Return what the true monotonic clock of the node's machine shows."""
        ...

    async def now(self) -> Moment:
        """Return this moment by the true clocks of the node's machine."""
        ...

    async def skew(self, owner: str, skew: Skew) -> Moment:
        """Lie to every process there, also to those that start later; in place of this owner's lie.

        Return the moment from which the lie counts.
        """
        ...

    async def true_clocks(self, owner: str) -> None:
        """Take the lie of an owner back; may come twice.  The true time is seen at once."""
        ...

    def owners(self) -> Sequence[str]:
        """Return whose lies are told now, the latest last."""
        ...

    def applied(self, owner: str) -> Sequence[Applied]:
        """Return the processes that were lied to since this owner began, as it happened."""
        ...

    async def read_clocks(self) -> Mapping[int, Readings]:
        """Return what each process there reads, by pid, with what stands in the way."""
        ...


@runtime_checkable
class ClockSettable(Protocol):
    """Ability of a node: lie to its processes about the time."""

    @property
    def clocks(self) -> Clocks:
        """The clocks of its processes."""
        ...


class Witness(Protocol):
    """Ability of a run: ask the programs themselves what time they have."""

    async def told(self, node: str, clocks: Clocks) -> Readings | None:
        """Return what the program on a node answers, None when it cannot or does not.

        `clocks` are the node's: the answer is put between two moments of its machine.
        """
        ...


@runtime_checkable
class Disk(Protocol):
    """Ability of a node: its data folder lies on a small file system of its own.

    Each order has an owner; the disk is whole again when the last owner took its order back.
    """

    def fill(self, owner: str) -> None:
        """Leave no room: the next write that needs a new block fails with ENOSPC."""
        ...

    def forbid_writes(self, owner: str) -> None:
        """Make it read-only.  Raises OSError (EBUSY) while a file there is open for writing."""
        ...

    def make_whole(self, owner: str) -> None:
        """Give room and writing back; may come twice."""
        ...

    def limited(self) -> bool:
        """Whether any owner still limits the disk."""
        ...

    def free_bytes(self) -> int:
        """Return the room that is left, as the file system says."""
        ...

    def try_to_write(self) -> str:
        """Write a block by a process of its own; return "" or the error's name (ENOSPC, EROFS)."""
        ...


@runtime_checkable
class DataFolder(Protocol):
    """Ability of a node: what lies in its data folder, for a node on which nothing runs.

    Paths are relative to the folder; copies are kept beside it, by name.
    """

    def files(self) -> Mapping[str, int]:
        """Return the regular files with their sizes in bytes."""
        ...

    def read(self, path: str) -> bytes:
        """Return what a file holds.  Raises OSError."""
        ...

    def change(self, path: str, offset: int, data: bytes) -> None:
        """Write `data` at an offset, also beyond the end.  Raises OSError."""
        ...

    def cut(self, path: str, size: int) -> None:
        """Cut a file off at `size` bytes.  Raises OSError."""
        ...

    def keep(self, copy: str) -> None:
        """Copy the folder as it lies now, in place of an older copy of that name."""
        ...

    def put_back(self, copy: str | None, *, aside: str | None = None) -> None:
        """Replace what lies there by a copy, or by nothing (None); keep it as the copy `aside`."""
        ...

    def drop(self, copy: str) -> None:
        """Delete a copy; may come twice."""
        ...

    def digest(self, copy: str | None = None) -> str:
        """Return a hash over all names and contents of the folder, or of a copy."""
        ...


@runtime_checkable
class SecretFolder(Protocol):
    """Ability of a node: keep files that nobody but the owner of its servers may read."""

    def keep_secret(self, path: str, data: bytes) -> None:
        """Write a file, in a folder that may have to be made.  Raises OSError."""
        ...


@dataclass(frozen=True)
class Tokens:
    """What is known of the tokens of one key.

    `granted` to anybody so far, in the order of the answers; `accepted` is the highest with which a
    write of an honest worker was acknowledged, None when there was none.
    """

    granted: Sequence[int]
    accepted: int | None


@dataclass(frozen=True)
class Attempt:
    """One operation as it was recorded: its place in the history, how it ended, what it brought.

    `value` is what was written.
    """

    op: int | None
    outcome: Literal["ok", "fail", "info"]
    error: str | None = None
    result: Any = None
    value: Any = None


class Adversary(Protocol):
    """Ability of a run: one more worker, that does what it is told and is recorded like any."""

    async def perform(self, f: str, key: str, token: int | None = None) -> Attempt:
        """Perform one operation, bounded in time.

        `read`; `write`, of a value that nobody wrote before; `renew` or `release`, of a grant that
        is made up of key and token.
        """
        ...

    def tokens(self) -> Mapping[str, Tokens]:
        """Return what is known of the tokens of each key of which any was granted."""
        ...


@dataclass(frozen=True)
class Site:
    """The place of a run.  What is None cannot be done there.

    `lock_servers`, `store_servers`, `workers` are node names; `target` and `cluster` are the lock
    service's, for abilities such as membership.  `seed` is the run's: a fault draws from a stream
    of it that bears its own name.  `meant` are the nodes that the fault which is asked may hit,
    None for all.
    """

    nodes: Mapping[str, Node]
    lock_servers: Sequence[str] = ()
    store_servers: Sequence[str] = ()
    workers: Sequence[str] = ()
    ttl_s: float = 2.0
    seed: int = 0
    network: Network | None = None
    links: Links | None = None
    messages: Messages | None = None
    upkeep: Upkeep | None = None
    adversary: Adversary | None = None
    witness: Witness | None = None
    target: Target | None = None
    cluster: Cluster | None = None
    meant: Collection[str] | None = None

    @property
    def at_risk(self) -> Mapping[str, Node]:
        """The nodes that the fault may hit."""
        if self.meant is None:
            return self.nodes
        return {name: node for name, node in self.nodes.items() if name in self.meant}
