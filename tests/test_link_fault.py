"""The fault `link` on links of paper: whom it means, and when it believes its bursts."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from harness.errors import UsageError
from harness.local.line import Line
from harness.node import Node
from harness.plugins import make
from harness.shape import Shape, together
from harness.site import Burst, Pair, Site
from harness.window import Proof
from nemesis._quality import is_good, plan, signs
from nemesis.link import Link

QUICK_S = 0.00005
GOOD = Shape()


def burst(shape: Shape, count: int, gap_s: float, size: int, seed: int = 3) -> Burst:
    """Return what a burst over a line of that shape looks like."""
    line = Line(shape, seed)
    arrived = sorted(
        (at + QUICK_S, i, i * gap_s) for i in range(count) for at in line.due(size, i * gap_s)
    )
    firsts: dict[int, float] = {}
    order = [i for _, i, _ in arrived]
    for at, i, sent in arrived:
        firsts.setdefault(i, at - sent)
    unique = list(dict.fromkeys(order))
    delays = sorted(firsts.values())
    span_s = arrived[-1][0] - arrived[0][0] if arrived else 0.0
    return Burst(
        sent=count,
        delay_s=delays[len(delays) // 2] if delays else None,
        least_s=delays[0] if delays else None,
        spread_s=delays[-1] - delays[0] if delays else None,
        lost=count - len(firsts),
        doubled=len(arrived) - len(firsts),
        swapped=sum(i < max(unique[:n], default=-1) for n, i in enumerate(unique)),
        rate_bytes_s=(len(unique) - 1) * size / span_s if span_s else None,
    )


def told(asked: Shape, real: Shape, others: Shape = GOOD) -> set[bool | None]:
    """Return what a burst over a real link says of what was asked for."""
    how = plan(asked, 1)
    now = burst(real, how.count, how.gap_s, how.size_bytes)
    return {sign.seen for sign in signs(asked, others, now)}


SHAPES = [
    Shape(delay_s=0.05),
    Shape(delay_s=0.002),
    Shape(delay_s=0.05, jitter_s=0.02),
    Shape(loss=0.05),
    Shape(loss=1.0),
    Shape(duplicate=0.1),
    Shape(reorder=0.1),
    Shape(delay_s=0.02, loss=0.1, duplicate=0.1, reorder=0.1),
    Shape(rate_bytes_s=20_000),
    Shape(rate_bytes_s=1_000_000),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_link_that_is_as_asked_is_seen_and_not_called_good(shape: Shape) -> None:
    assert told(shape, shape) == {True}
    how = plan(shape, 1)
    assert not is_good(shape, burst(shape, how.count, how.gap_s, how.size_bytes))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.loss < 1])
def test_a_good_link_is_not_taken_for_a_bad_one(shape: Shape) -> None:
    assert True not in told(shape, Shape())
    how = plan(shape, 1)
    assert is_good(shape, burst(Shape(), how.count, how.gap_s, how.size_bytes))


def test_what_others_do_is_not_taken_for_ones_own() -> None:
    other, own = Shape(delay_s=0.1), Shape(delay_s=0.02)
    assert told(own, other, others=other) == {False}
    assert told(own, together([own, other]), others=other) == {True}


def test_what_a_burst_cannot_tell_is_not_decided() -> None:
    assert told(Shape(loss=0.0001), Shape()) == {None}
    assert told(Shape(delay_s=0.0001), Shape(delay_s=0.0001)) == {None}
    assert told(Shape(rate_bytes_s=1e9), Shape()) == {None}


@dataclass
class PaperNode:
    """A name, which is all that a link fault asks of a node."""

    name: str


@dataclass
class PaperLinks:
    """Links that become as bad as ordered, `spill` backwards too, and `stay` bad."""

    works: bool = True
    spill: bool = False
    stay: bool = False
    orders: dict[str, tuple[frozenset[Pair], Shape]] = field(default_factory=dict)
    real: dict[Pair, Shape] = field(default_factory=dict)
    measured: set[Pair] = field(default_factory=set)

    def unavailable(self) -> str | None:
        return None if self.works else "no u32 filter"

    async def shape(self, owner: str, pairs: Iterable[Pair], shape: Shape) -> None:
        self.orders[owner] = (frozenset(pairs), shape)
        if self.works:
            self.real |= dict.fromkeys(self.orders[owner][0], shape)
        if self.spill:
            self.real |= {(b, a): shape for a, b in self.orders[owner][0]}

    async def unshape(self, owner: str) -> None:
        self.orders.pop(owner, None)
        if not self.stay:
            self.real.clear()

    def shaped_now(self, but: str | None = None) -> Mapping[Pair, Shape]:
        kept = [order for owner, order in self.orders.items() if owner != but]
        return {pair: shape for pairs, shape in kept for pair in pairs}

    async def measure(
        self, pairs: Sequence[Pair], count: int, size_bytes: int, gap_s: float, wait_s: float
    ) -> Mapping[Pair, Burst]:
        self.measured |= set(pairs)
        return {p: burst(self.real.get(p, Shape()), count, gap_s, size_bytes) for p in pairs}


def site(links: PaperLinks) -> Site:
    names = ["etcd1", "etcd2", "etcd3", "valkey1", "w1", "w2"]
    nodes = cast("Mapping[str, Node]", {name: PaperNode(name) for name in names})
    return Site(nodes, names[:3], names[3:4], names[4:], links=links)


def lived(fault: Link, links: PaperLinks, *who: str) -> tuple[Proof, Proof]:
    """Return the proofs of a window."""
    nodes = [cast("Node", PaperNode(name)) for name in who]

    async def live() -> tuple[Proof, Proof]:
        place = site(links)
        await fault.start(place, nodes)
        on = await fault.in_force(place, nodes)
        await fault.stop(place, nodes)
        return on, await fault.gone(place, nodes)

    return asyncio.run(live())


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({"peers": "lock", "direction": "out"}, {"w1>etcd1", "w1>etcd2", "w1>etcd3"}),
        ({"peers": "store"}, {"w1>valkey1", "valkey1>w1"}),
        ({"peers": "workers", "direction": "in"}, {"w2>w1"}),
        (
            {"peers": "servers", "direction": "in"},
            {f"{s}>w1" for s in ("etcd1", "etcd2", "etcd3", "valkey1")},
        ),
    ],
)
def test_whose_links_and_which_way(options: dict[str, Any], pairs: set[str]) -> None:
    on, off = lived(Link(delay="20ms", **options), PaperLinks(), "w1")
    assert set(on.facts["pairs"]) == pairs
    assert on.holds
    assert off.holds


def test_all_links_are_meant_and_some_are_measured() -> None:
    links = PaperLinks()
    on, _ = lived(Link(loss=0.2), links, "etcd1")
    assert len(on.facts["pairs"]) == 10
    assert 3 <= len(links.measured) <= 6


def test_an_order_that_nobody_carries_out_is_not_in_force() -> None:
    on, _ = lived(Link(delay="20ms"), PaperLinks(works=False), "w1")
    assert on.holds is False


def test_a_fault_of_one_direction_that_spills_into_the_other_is_seen() -> None:
    on, _ = lived(Link(delay="20ms", direction="out"), PaperLinks(spill=True), "w1")
    assert on.holds is False
    assert "should be good and is not" in on.text


def test_a_link_that_stays_bad_is_not_gone() -> None:
    _, off = lived(Link(delay="20ms"), PaperLinks(stay=True), "w1")
    assert off.holds is False


def test_nobody_to_talk_to_is_not_in_force() -> None:
    on, _ = lived(Link(loss=0.5, peers="store"), PaperLinks(), "valkey1")
    assert on.holds is False
    assert "no such peers" in on.text


def test_a_backend_without_it_says_so() -> None:
    assert Link(loss=0.5).available(Site({})) == "this backend cannot make links bad"
    assert Link(loss=0.5).available(site(PaperLinks(works=False))) == "no u32 filter"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "give delay, loss"),
        ({"jitter": "5ms"}, "give delay"),
        ({"delay": "5ms", "jitter": "6ms"}, "jitter is more than delay"),
        ({"delay": 5}, "no duration"),
        ({"loss": 1.5}, "loss"),
        ({"rate": 0}, "rate"),
        ({"delay": "1s", "direction": "up"}, "direction"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make("faults", "link", options)
