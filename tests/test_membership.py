"""Membership: etcd loses, replaces and gains members, and comes back to its size."""

from pathlib import Path

import pytest

from harness.site import Site
from harness.target import Cluster, Place
from nemesis.membership import Membership
from targets.etcd import Etcd
from tests.support_faults import faulted

ALL = {"etcd1", "etcd2", "etcd3"}


@pytest.mark.sandbox
@pytest.mark.real
def test_members_go_and_come_and_one_with_no_memory_is_not_let_in(tmp_path: Path) -> None:
    """One run for all: etcd agrees to a change only after five quiet seconds."""
    run = faulted(
        tmp_path,
        "amnesia:who=etcd3,at=300ms,for=200ms,empty=true",
        "membership:who=etcd1,what=add,at=6500ms,for=200ms",
        "membership:who=follower,what=remove,at=9500ms,for=500ms",
        "membership:who=etcd3,what=replace,at=16s,for=200ms",
        lock="etcd[heartbeat_ms=50,election_ms=500]",
        store="valkey[fenced=true]",
        time="18s",
    )
    assert not run.names
    assert not run.results.leftover
    assert run.reasons <= {"vacuous"}
    (forgot,) = run.of("amnesia")
    assert "it got back what it had" in forgot["off"]["text"]
    add, remove, replace = (window["on"]["facts"] for window in run.of("membership"))
    assert len(add["members"]) == 4
    assert set(remove["members"]) < ALL
    assert len(remove["members"]) == 2
    assert set(replace["members"]) == ALL
    assert replace["members"]["etcd3"] != add["members"]["etcd3"]
    for window in run.of("membership"):
        assert set(window["off"]["facts"]["members"]) == ALL


def site(nodes: int) -> Site:
    places = [Place(f"etcd{i + 1}", "127.0.0.1", 1, "lock", "") for i in range(nodes)]
    return Site({}, target=Etcd(nodes=nodes), cluster=Cluster(places))


def test_where_it_cannot_be_done_it_is_refused_with_the_reason() -> None:
    assert "nothing can be started again" in (Membership().available(site(3)) or "")


def test_a_member_that_comes_again_joins_what_is_there() -> None:
    server = Etcd().joining("etcd2")
    assert server.name == "etcd2"
    assert list(server.argv[-2:]) == ["--initial-cluster-state", "existing"]
