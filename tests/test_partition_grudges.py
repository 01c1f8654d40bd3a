"""Shapes of partitions, as properties of the pairs that they cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemesis import grudges
from nemesis.grudges import Pairs, Places


def names(prefix: str, least: int, most: int) -> st.SearchStrategy[list[str]]:
    return st.integers(least, most).map(lambda n: [f"{prefix}{i}" for i in range(1, n + 1)])


@st.composite
def places(draw: st.DrawFn, least: int = 3) -> Places:
    lock = draw(names("etcd", least, 9))
    store = draw(st.one_of(names("valkey", 1, 3), st.just(lock)))
    return Places(lock, store, list(dict.fromkeys([*lock, *store, *draw(names("w", 1, 6))])))


@st.composite
def who(draw: st.DrawFn, of: Places) -> list[str]:
    return draw(st.lists(st.sampled_from(list(of.everyone)), min_size=1, max_size=2, unique=True))


def groups(everyone: list[str], cut: Pairs) -> set[frozenset[str]]:
    """Who can still reach each other both ways, over however many others."""
    found = []
    left = set(everyone)
    while left:
        group = {left.pop()}
        while more := {b for a in group for b in left if (a, b) not in cut and (b, a) not in cut}:
            group |= more
            left -= more
        found.append(frozenset(group))
    return set(found)


def turned(pairs: Pairs) -> Pairs:
    return frozenset((b, a) for a, b in pairs)


@given(st.data())
def test_no_shape_cuts_a_node_from_itself_or_names_a_stranger(data: st.DataObject) -> None:
    of = data.draw(places())
    chosen = data.draw(who(of))
    for shape in grudges.SHAPES:
        for a, b in grudges.grudge(shape, of, chosen, "all"):
            assert a != b
            assert {a, b} <= set(of.everyone)


@given(st.data())
def test_an_isolated_node_reaches_nobody_and_all_others_each_other(data: st.DataObject) -> None:
    of = data.draw(places())
    chosen = data.draw(who(of))
    cut = grudges.grudge("isolate", of, chosen, "all")
    rest = set(of.everyone) - set(chosen)
    assert groups(list(of.everyone), cut) == {frozenset(chosen), frozenset(rest)} - {frozenset()}
    assert not any({a, b} <= rest for a, b in cut)


@given(st.data())
def test_one_way_cuts_are_the_halves_of_an_isolation(data: st.DataObject) -> None:
    of = data.draw(places())
    chosen = data.draw(who(of))
    deaf = grudges.grudge("one-way-in", of, chosen, "all")
    mute = grudges.grudge("one-way-out", of, chosen, "all")
    assert deaf == turned(mute)
    assert deaf | mute == grudges.grudge("isolate", of, chosen, "all")
    assert all(b in chosen and a not in chosen for a, b in deaf)


@given(st.data())
def test_a_split_makes_two_sides_with_who_on_the_smaller(data: st.DataObject) -> None:
    of = data.draw(places())
    chosen = data.draw(st.sampled_from(list(of.lock)))
    for shape in grudges.SPLITS:
        cut = grudges.grudge(shape, of, [chosen], "all")
        assert cut == turned(cut)
        sides = groups(list(of.everyone), cut)
        assert len(sides) == 2
        (small,) = (side for side in sides if chosen in side)
        in_small = len(small & set(of.lock))
        if shape == "majority":
            assert in_small == (len(of.lock) - 1) // 2
        else:
            assert in_small == len(of.lock) // 2


@given(names("n", 3, 12))
def test_in_a_ring_each_hears_a_majority_and_no_two_the_same(ring: list[str]) -> None:
    cut = grudges.ring(ring)
    heard = {b: frozenset(a for a in ring if (a, b) not in cut) for b in ring}
    assert all(node in heard[node] for node in ring)
    assert {len(group) for group in heard.values()} == {len(ring) // 2 + 1}
    assert len(set(heard.values())) == len(ring)
    if (len(ring) // 2 + 1) % 2:
        assert cut == turned(cut)


@given(names("n", 3, 12), st.data())
def test_over_a_bridge_two_halves_meet_in_one_node_only(
    nodes: list[str], data: st.DataObject
) -> None:
    middle = data.draw(st.sampled_from(nodes))
    cut = grudges.bridge(nodes, [middle])
    assert not any(middle in pair for pair in cut)
    rest = [name for name in nodes if name != middle]
    sides = groups(rest, cut)
    assert len(sides) == 2
    assert len(groups(nodes, cut)) == 1
    assert abs(len(min(sides, key=len)) - len(max(sides, key=len))) <= 1


@given(st.data())
def test_worker_shapes_touch_only_that_worker_and_that_part(data: st.DataObject) -> None:
    of = data.draw(places())
    worker = data.draw(st.sampled_from(of.clients))
    for shape, part in (("worker-lock", of.lock), ("worker-store", of.store)):
        cut = grudges.grudge(shape, of, [worker], "all")  # type: ignore[arg-type] # both are shapes
        assert cut == grudges.between([worker], part)
        assert not grudges.grudge(shape, of, [of.lock[0]], "all")  # type: ignore[arg-type] # same


@given(st.data())
def test_a_scope_keeps_links_of_its_kind(data: st.DataObject) -> None:
    of = data.draw(places())
    chosen = data.draw(who(of))
    shape = data.draw(st.sampled_from(grudges.SCOPED))
    whole = grudges.grudge(shape, of, chosen, "all")
    servers = grudges.grudge(shape, of, chosen, "servers")
    workers = grudges.grudge(shape, of, chosen, "workers")
    assert servers | workers == whole
    assert not servers & workers
    assert not any(name in of.clients for pair in servers for name in pair)
    assert all(set(pair) & set(of.clients) for pair in workers)


@given(
    names("n", 2, 5).flatmap(
        lambda n: st.sets(st.sampled_from(list(itertools.permutations(n, 2))), min_size=1)
    )
)
def test_pairs_are_read_as_they_are_shown(pairs: set[tuple[str, str]]) -> None:
    assert grudges.parse(" ".join(grudges.show(pairs))) == pairs


@pytest.mark.parametrize("text", ["", "w1", "w1>", ">w1", "w1>w1", "w1>w2>w3", "w1 > w2"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: "):
        grudges.parse(text)
