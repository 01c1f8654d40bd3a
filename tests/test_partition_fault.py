"""The fault `partition` on a network of paper: what it orders, and when it believes the probe."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from harness.errors import UsageError
from harness.node import Node
from harness.plugins import make
from harness.shape import Shape
from harness.site import Links, Pair, Passage, Site
from harness.window import Proof
from nemesis.partition import Partition


@dataclass
class PaperNode:
    """A name, which is all that a partition asks of a node."""

    name: str


@dataclass
class PaperNetwork:
    """Cuts exactly what it is told to, apart from `leaks`, and also cuts `too_much`."""

    leaks: frozenset[Pair] = frozenset()
    too_much: frozenset[Pair] = frozenset()
    tells: bool = True
    reason: str | None = None
    orders: dict[str, frozenset[Pair]] = field(default_factory=dict)
    waited_s: list[float] = field(default_factory=list)

    def unavailable(self, *, reject: bool = False) -> str | None:
        return self.reason

    async def cut(self, owner: str, pairs: Iterable[Pair], *, reject: bool = False) -> None:
        self.orders[owner] = frozenset(pairs)

    async def mend(self, owner: str) -> None:
        self.orders.pop(owner, None)

    def cut_now(self) -> frozenset[Pair]:
        return frozenset().union(*self.orders.values())

    def cut_since(self, since_s: float) -> frozenset[Pair]:
        return self.cut_now()

    async def passes(self, pairs: Sequence[Pair], more_s: float = 0.0) -> Mapping[Pair, Passage]:
        self.waited_s.append(more_s)
        stopped = (self.cut_now() - self.leaks) | self.too_much
        return {p: self._passage(p in stopped) for p in pairs}

    def _passage(self, stopped: bool) -> Passage:
        return Passage(not stopped, not stopped, not stopped, refused=stopped and self.tells)

    async def stopped_packets(self) -> int:
        return 7


def site(network: PaperNetwork, lock: int = 3, store: int = 1, links: Any = None) -> Site:
    locks = [f"etcd{i + 1}" for i in range(lock)]
    stores = [f"valkey{i + 1}" for i in range(store)]
    names = [*locks, *stores, "w1", "w2"]
    nodes = cast("Mapping[str, Node]", {name: PaperNode(name) for name in names})
    return Site(
        nodes,
        locks,
        stores,
        ["w1", "w2"],
        network=network,
        links=cast("Links | None", links),
    )


def who(*names: str) -> list[Node]:
    return [cast("Node", PaperNode(name)) for name in names]


def lived(fault: Partition, place: Site, nodes: list[Node]) -> tuple[Proof, Proof]:
    """Return the proofs of a window."""

    async def live() -> tuple[Proof, Proof]:
        await fault.start(place, nodes)
        on = await fault.in_force(place, nodes)
        await fault.stop(place, nodes)
        return on, await fault.gone(place, nodes)

    return asyncio.run(live())


def test_a_cut_that_works_holds_and_goes() -> None:
    network = PaperNetwork()
    on, off = lived(Partition(shape="worker-lock"), site(network), who("w1"))
    assert on.holds
    assert len(on.facts["cut"]) == 6
    assert on.facts["tried"]
    assert on.facts["stopped_packets"] == 7
    assert off.holds
    assert not network.orders


@pytest.mark.parametrize("shape", ["isolate", "worker-lock", "one-way-out"])
def test_one_pair_that_leaks_is_no_partition(shape: str) -> None:
    network = PaperNetwork(leaks=frozenset({("w1", "etcd2")}))
    on, _ = lived(Partition(shape=shape), site(network), who("w1"))
    assert on.holds is False
    assert "w1>etcd2 did" in on.text


def test_a_one_way_cut_that_acts_both_ways_is_not_what_was_asked_for() -> None:
    network = PaperNetwork(too_much=frozenset({("w1", "etcd2")}))
    on, _ = lived(Partition(shape="one-way-in"), site(network), who("w1"))
    assert on.holds is False
    assert on.facts["silent"] == ["w1>etcd2"]


def test_a_refusal_that_nobody_is_told_of_is_none() -> None:
    loud, _ = lived(Partition(reject=True), site(PaperNetwork()), who("w1"))
    mute, _ = lived(Partition(reject=True), site(PaperNetwork(tells=False)), who("w1"))
    assert loud.holds
    assert mute.holds is False
    assert "did not refuse" in mute.text


def test_what_does_not_come_back_is_not_gone() -> None:
    network = PaperNetwork(too_much=frozenset({("etcd1", "w1")}))
    _, off = lived(Partition(), site(network), who("w1"))
    assert off.holds is False
    assert "etcd1>w1 do not" in off.text


def test_what_another_owner_cuts_still_is_left_to_it() -> None:
    network = PaperNetwork()
    network.orders["another"] = frozenset({("w1", "etcd1"), ("w2", "etcd1")})
    on, off = lived(Partition(), site(network), who("w1"))
    assert on.holds
    assert not set(on.facts["tried"]) & {"w1>etcd1", "w2>etcd1"}
    assert off.holds


def test_a_shape_that_means_nothing_for_who_is_not_in_force() -> None:
    on, _ = lived(Partition(shape="worker-lock"), site(PaperNetwork()), who("etcd1"))
    assert on.holds is False
    assert "means nothing for etcd1" in on.text


class PaperLinks:
    """Bad links between w1 and etcd1, one way."""

    def shaped_now(self, but: str | None = None) -> Mapping[Pair, Shape]:
        return {("w1", "etcd1"): Shape(delay_s=0.2)}


def test_bad_links_are_waited_for_and_not_taken_for_silence() -> None:
    network = PaperNetwork()
    fault = Partition(shape="grudge", pairs="w1>etcd1")
    on, off = lived(fault, site(network, links=PaperLinks()), who("w1"))
    assert on.holds
    assert off.holds
    assert network.waited_s == [0.4, 0.4]
    assert "etcd1>w1" not in on.facts["tried"]


def test_a_pair_of_nodes_that_are_not_there_is_refused() -> None:
    refused = Partition(shape="grudge", pairs="w1>etcd9").available(site(PaperNetwork()))
    assert refused == "there is no node etcd9"


def test_a_backend_without_a_network_or_a_kernel_without_rules_is_named() -> None:
    bare = site(PaperNetwork())
    nodes = bare.nodes
    assert Partition().available(Site(nodes)) == "this backend cannot stop packets"
    assert Partition().available(site(PaperNetwork(reason="no nft"))) == "no nft"
    assert Partition().available(bare) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": "circle"}, "circle"),
        ({"shape": "grudge"}, "needed there"),
        ({"pairs": "w1>w2"}, "belongs to shape=grudge"),
        ({"shape": "grudge", "pairs": "w1"}, "sender>receiver"),
        ({"shape": "ring", "scope": "all"}, "scope means nothing for shape=ring"),
        ({"reject": "perhaps"}, "reject"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make("faults", "partition", options)


def test_a_split_cuts_servers_and_leaves_workers_unless_told() -> None:
    network = PaperNetwork()
    narrow, _ = lived(Partition(shape="majority"), site(network), who("etcd2"))
    wide, _ = lived(Partition(shape="majority", scope="all"), site(network), who("etcd2"))
    assert not any("w1" in pair for pair in narrow.facts["cut"])
    assert {"etcd2>etcd1", "etcd2>etcd3"} <= set(narrow.facts["cut"])
    assert "w1>etcd2" in wide.facts["cut"]


def test_the_ledger_names_the_pairs() -> None:
    fault = Partition(shape="one-way-in")
    undo = fault.undo(site(PaperNetwork(), lock=1, store=0), who("w1"))
    assert undo == {"what": "mend", "pairs": ["etcd1>w1", "w2>w1"]}
