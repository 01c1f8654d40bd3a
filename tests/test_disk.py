"""Disk faults: what a server does with them, and what a file looks like after damage."""

from pathlib import Path
from typing import cast

import pytest

from harness.local.disk import Folder, OwnDisk
from harness.node import Node
from harness.rng import stream
from harness.site import Site
from nemesis._damage import Damage, Wound
from nemesis.disk import Disk
from tests.inside import inside
from tests.support_faults import faulted

STORED = {"lock": "atlasmart", "store": "atlasmart[fence=checked]", "ttl": "1s"}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.sandbox
def test_a_store_ends_on_a_full_and_on_a_read_only_disk_and_serves_again(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "disk:who=store,what=full,at=500ms,for=2s",
        "disk:who=store,what=read-only,at=4s,for=500ms",
        time="6s",
        workload="fencing[rounds=100,rate=200,think=1ms]",  # so that the last page is soon full
        **STORED,
    )
    assert not run.names
    assert run.reasons <= {"vacuous"}, run.results.verdict
    assert not run.results.leftover
    full, read_only = run.of("disk")
    assert full["on"]["facts"]["error"] == "ENOSPC"
    assert full["on"]["facts"]["free_bytes"] == 0
    assert read_only["on"]["facts"]["error"] == "EROFS"
    assert not read_only["on"]["facts"]["runs"]
    log = run.log("store1")
    assert "No space left on device" in log
    assert "Read-only file system" in log
    assert any(c.outcome == "ok" for c in run.calls() if c.call_ns > read_only["off_ns"])


@pytest.mark.sandbox
@pytest.mark.real
def test_valkey_ends_when_its_log_cannot_be_written_and_serves_again(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "disk:who=store,what=full,at=500ms,for=2s",
        time="4s",
        workload="fencing[rounds=100,rate=200,think=1ms]",
        lock="atlasmart",
        store="valkey[fenced=true]",
        ttl="1s",
    )
    assert not run.names
    assert not run.results.leftover
    (full,) = run.of("disk")
    assert "valkey1 runs and answers" in full["off"]["text"]
    assert "Can't recover from AOF write error" in run.log("valkey1")
    assert any(
        c.outcome == "ok" and c.f == "write" for c in run.calls() if c.call_ns > full["off_ns"]
    )


@pytest.mark.sandbox
def test_a_store_that_was_killed_comes_back_to_a_full_disk_and_serves_when_there_is_room(
    tmp_path: Path,
) -> None:
    """The kill ends within the other window: that its server ends again is not the kill's doing."""
    run = faulted(
        tmp_path,
        "disk:who=store,what=full,at=500ms,for=5s",
        "kill:who=store,at=800ms,for=200ms",
        "amnesia:who=store,age=10ms,at=2s,for=200ms",
        time="7s",
        workload="fencing[rounds=100,rate=200,think=1ms]",
        **STORED,
    )
    assert not run.results.leftover
    (full,) = run.of("disk")
    assert "store1 runs and answers" in full["off"]["text"]
    assert any(c.outcome == "ok" for c in run.calls() if c.call_ns > full["off_ns"])


def limited() -> dict[str, object]:
    """Return what a disk without room or leave lets us do, and what runs on its node."""
    disk = OwnDisk(Path("/dev/shm/winkle-test-disk"))
    (disk.data / "big").write_bytes(bytes(1 << 20))
    disk.fill("a")
    disk.forbid_writes("b")
    disk.keep("copy")
    disk.put_back("copy", aside="newest")
    disk.change("big", 5, b"x")
    same = disk.digest("copy") == disk.digest("newest") != disk.digest()
    both = disk.try_to_write()
    disk.make_whole("b")
    full = disk.try_to_write()
    disk.make_whole("a")
    return {"same": same, "both": both, "full": full, "whole": disk.try_to_write()}


@pytest.mark.sandbox
def test_a_limited_disk_binds_what_runs_there_and_not_our_copies() -> None:
    assert inside(limited) == {"same": True, "both": "EROFS", "full": "ENOSPC", "whole": ""}


@pytest.mark.sandbox
def test_a_flipped_bit_is_refused_and_a_lost_tail_is_a_lost_acknowledgement(tmp_path: Path) -> None:
    """The lock server's journal is damaged where it notices; the store's where it cannot."""
    run = faulted(
        tmp_path,
        "disk:who=lock1,what=flip,pattern=*.jsonl,at=1s,for=100ms",
        "disk:who=store,what=truncate,bytes=500,at=2500ms,for=100ms",
        time="5s",
        **STORED,
    )
    assert "lost-ack" in run.names
    assert not run.results.leftover
    flip, tail = run.of("disk")
    assert "journal.jsonl changed from" in flip["on"]["text"]
    assert tail["on"]["facts"]["bytes"] == 500
    if "refused" in flip["off"]["facts"]:  # a bit inside a number may go unnoticed
        assert "it got back what it had" in flip["off"]["text"]
    assert "lock1 runs and answers" in flip["off"]["text"]


class Place(Folder):
    """A node that is only its data folder."""

    name = "s1"


def damage(what: str, *, pattern: str = "*", tail_bytes: int = 3) -> Damage:
    assert what in ("flip", "truncate")
    return Damage("test", what, pattern, tail_bytes)  # type: ignore[arg-type]


def wound(damage: Damage, place: Place, seed: int = 1) -> Wound | None:
    return damage._wound(cast("Node", place), stream(seed, "disk"))


def test_one_bit_of_the_largest_match_is_flipped_where_something_was_written(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path / "node")
    (place.data / "wal").mkdir()
    contents = {"wal/1.wal": b"abc" + bytes(5000), "wal/2.wal": b"x" * 9, "big.db": b"y" * 9000}
    for name, content in contents.items():
        (place.data / name).write_bytes(content)
    found = wound(damage("flip", pattern="*.wal"), place)
    assert found is not None
    assert found.path == "wal/1.wal"
    assert found.offset < 3
    now = place.read("wal/1.wal")
    assert found.shows(now)
    assert not found.shows(contents["wal/1.wal"])
    bits = [(a ^ b).bit_count() for a, b in zip(now, contents["wal/1.wal"], strict=True) if a != b]
    assert bits == [1]
    place.change(found.path, found.offset, found.before)
    assert {name: place.read(name) for name in place.files()} == contents


def test_the_place_comes_from_the_seed_and_the_next_one_is_another(tmp_path: Path) -> None:
    place = Place(tmp_path / "node")
    (place.data / "file").write_bytes(bytes(range(1, 251)) * 40)

    def places(seed: int) -> list[Wound | None]:
        flips = damage("flip")
        found = [wound(flips, place, seed) for _ in range(3)]
        for one in reversed(found):
            assert one is not None
            place.change(one.path, one.offset, one.before)
        return found

    assert places(1) == places(1)
    assert places(1) != places(2)
    assert len({str(one) for one in places(1)}) == 3


def test_a_tail_is_cut_off_what_was_written_and_can_be_given_back(tmp_path: Path) -> None:
    place = Place(tmp_path / "node")
    (place.data / "log").write_bytes(b"0123456789" + bytes(100))
    found = wound(damage("truncate"), place)
    assert found == Wound("log", 7, b"789", b"")
    assert place.read("log") == b"0123456"
    assert found.shows(place.read("log"))
    place.change(found.path, found.offset, found.before)
    assert place.read("log") == b"0123456789"
    assert not found.shows(place.read("log"))


@pytest.mark.parametrize("what", ["flip", "truncate"])
def test_nothing_written_is_nothing_to_damage(tmp_path: Path, what: str) -> None:
    place = Place(tmp_path / "node")
    (place.data / "room").write_bytes(bytes(4096))
    assert wound(damage(what), place) is None
    assert wound(damage(what, pattern="*.aof"), place) is None


def test_only_to_limit_a_disk_it_must_be_the_nodes_own(tmp_path: Path) -> None:
    site = Site({"s1": cast(Node, Place(tmp_path / "node"))})
    assert Disk(what="full").available(site) == "s1 has no disk of its own"
    assert "s1 has no" not in (Disk(what="flip").available(site) or "")


def test_a_copy_is_told_apart_by_any_name_or_content(tmp_path: Path) -> None:
    place = Place(tmp_path / "node")
    (place.data / "a").mkdir()
    (place.data / "a" / "b").write_bytes(b"1")
    place.keep("copy")
    assert place.digest() == place.digest("copy")
    place.change("a/b", 0, b"2")
    assert place.digest() != place.digest("copy")
    place.put_back("copy", aside="newest")
    assert place.digest() == place.digest("copy")
    assert place.read("a/b") == b"1"
    (place.data / "empty").mkdir()
    assert place.digest() != place.digest("copy")
    place.put_back("newest")
    assert place.read("a/b") == b"2"
    place.put_back(None)
    assert not place.files()
    place.drop("copy")
    place.drop("copy")
