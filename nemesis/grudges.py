"""Which packets a partition stops, as pure functions from names to directed pairs.

A pair (a, b) stands for all packets from a to b.  `who` are the nodes that the fault means; they
are put on the smaller side, or into the middle of a bridge.  The shapes are Jepsen's, whose word
for such a set is a grudge.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Pair = tuple[str, str]
Pairs = frozenset[Pair]
Scope = Literal["servers", "workers", "all"]
Shape = Literal[
    "isolate",
    "halves",
    "majority",
    "ring",
    "bridge",
    "one-way-in",
    "one-way-out",
    "worker-lock",
    "worker-store",
    "grudge",
]
SHAPES: tuple[Shape, ...] = get_args(Shape)
SPLITS: tuple[Shape, ...] = ("halves", "majority")
SCOPED: tuple[Shape, ...] = ("isolate", "one-way-in", "one-way-out", *SPLITS)
LOCK_SERVERS_MIN: dict[Shape, int] = {"halves": 2, "majority": 3, "ring": 3, "bridge": 3}


@dataclass(frozen=True)
class Places:
    """The nodes of a run: servers by part, and everybody."""

    lock: Sequence[str]
    store: Sequence[str]
    everyone: Sequence[str]

    @property
    def clients(self) -> list[str]:
        """Everybody who is no server."""
        return [name for name in self.everyone if name not in {*self.lock, *self.store}]

    @property
    def groups(self) -> list[list[str]]:
        """Nodes of one kind together; servers that play both parts once."""
        stores = [name for name in self.store if name not in self.lock]
        return [list(self.lock), stores, self.clients]


def grudge(
    shape: Shape, places: Places, who: Sequence[str], scope: Scope, listed: Pairs = frozenset()
) -> Pairs:
    """Return what a partition of that shape stops; empty where `who` cannot be meant."""
    rest = [name for name in places.everyone if name not in who]
    match shape:
        case "isolate":
            found = between(who, rest)
        case "one-way-in":
            found = product(rest, who)
        case "one-way-out":
            found = product(who, rest)
        case "halves" | "majority":
            small = [name for group in places.groups for name in smaller_side(group, who, shape)]
            found = between(small, [name for name in places.everyone if name not in small])
        case "ring":
            return ring(places.lock)
        case "bridge":
            return bridge(places.lock, who)
        case "worker-lock":
            return between([name for name in who if name in places.clients], places.lock)
        case "worker-store":
            return between([name for name in who if name in places.clients], places.store)
        case "grudge":
            return listed
    return within(found, places, scope)


def product(senders: Iterable[str], receivers: Iterable[str]) -> Pairs:
    """Return the pairs from each sender to each receiver."""
    receivers = list(receivers)
    return frozenset((a, b) for a in senders for b in receivers)


def between(left: Iterable[str], right: Iterable[str]) -> Pairs:
    """Return the pairs between two groups, both ways."""
    left, right = list(left), list(right)
    return product(left, right) | product(right, left)


def smaller_side(group: Sequence[str], who: Sequence[str], shape: Shape) -> list[str]:
    """Return the side of a split that has less than half (majority), or at most half (halves)."""
    first = [name for name in group if name in who] + [name for name in group if name not in who]
    size = (len(group) - 1) // 2 if shape == "majority" else len(group) // 2
    return first[: max(0, size)]


def ring(names: Sequence[str]) -> Pairs:
    """Let every node hear a majority, itself included, and no two nodes the same one.

    The nodes stand in a circle and each hears its neighbours.  Where a majority is an even number,
    one neighbour more is heard on one side, so those links work in one direction only.
    """
    count = len(names)
    heard = count // 2 + 1
    first = -((heard - 1) // 2)
    passing = {
        (names[(i + step) % count], names[i])
        for i in range(count)
        for step in range(first, first + heard)
    }
    return product(names, names) - passing - {(name, name) for name in names}


def bridge(names: Sequence[str], who: Sequence[str]) -> Pairs:
    """Let two halves meet only over one node in the middle, the first of `who` if it is one."""
    middle = next((name for name in who if name in names), names[len(names) // 2])
    others = [name for name in names if name != middle]
    return between(others[: len(others) // 2], others[len(others) // 2 :])


def within(pairs: Pairs, places: Places, scope: Scope) -> Pairs:
    """Keep the links between servers, or those of workers, or all."""
    if scope == "all":
        return pairs
    clients = set(places.clients)
    return frozenset(pair for pair in pairs if bool(clients & set(pair)) == (scope == "workers"))


def parse(text: str) -> Pairs:
    """Return the pairs that are written as `a>b b>c`.  Raises ValueError."""
    pairs = set()
    for word in text.split():
        sender, arrow, receiver = word.partition(">")
        if not (sender and arrow and receiver) or ">" in receiver or sender == receiver:
            raise ValueError(f"found {word!r}; allowed: sender>receiver, like w1>etcd2")
        pairs.add((sender, receiver))
    if not pairs:
        raise ValueError("found nothing; allowed: pairs like w1>etcd2 etcd2>w1")
    return frozenset(pairs)


def show(pairs: Iterable[Pair]) -> list[str]:
    """Return pairs as they are written, in order."""
    return [f"{a}>{b}" for a, b in sorted(pairs)]
