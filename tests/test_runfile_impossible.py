"""A fault that cannot be in a run is refused before anything is started, with place and reason."""

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cast import Cast, by_part
from harness.errors import UsageError
from harness.node import Node
from harness.plugins import make
from harness.roles import Roles
from harness.runfile import Flags, from_flags, from_values, read
from harness.target import Server
from nemesis.clock import Clock
from targets.etcd import Etcd
from targets.valkey import Valkey

PAIR = {"lock": "atlasmart", "store": "atlasmart[fence=checked]"}
ETCD = {"lock": "etcd", "store": "valkey"}
DOCKER = {**PAIR, "backend": "docker"}
LONELY = {"lock": "etcd[nodes=1]", "store": "valkey"}
BOTH = {"lock": "etcd", "store": "etcd"}


def refusal(run: dict[str, str], fault: str) -> str:
    """Return why a run with this fault is refused, nothing when it is not."""
    try:
        from_values({**run, "faults": [fault]})
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("run", "fault", "words"),
    [
        (PAIR, "partition:shape=halves,who=lock1,at=1s", "shape: found halves, which needs 2"),
        (LONELY, "partition:shape=majority", "needs 3 lock servers or more; there are 1"),
        (LONELY, "partition:shape=ring", "needs 3"),
        (LONELY, "partition:shape=bridge", "needs 3"),
        (PAIR, "partition:shape=worker-lock,who=store,at=1s", 'who: found "store", which shape='),
        (PAIR, "partition:shape=worker-store,who=lock1,at=1s", "allowed: a worker"),
        (BOTH, "partition:shape=worker-store", "the store has no servers of its own"),
        (PAIR, "partition:shape=isolate,scope=servers,who=w1", "cuts off from nothing"),
        (PAIR, "partition:shape=grudge,pairs=w1>nobody", "pairs: there is no node nobody"),
        (PAIR, "disk:what=full", 'who: found "holder"; workers keep no data'),
        (PAIR, "amnesia:who=w2,at=1s", 'who: found "w2"; workers keep no data'),
        (PAIR, "membership:who=lock1,at=1s", "kind: found membership, but atlasmart cannot"),
        (LONELY, "membership:who=leader,at=1s", "kind: found membership, which needs 3 members"),
        (ETCD, "membership:who=store,at=1s", 'who: found "store", which is no member of etcd'),
        (PAIR, "message:who=store1,part=lock,at=1s", "has no messages with the lock"),
        (BOTH, "message:part=store", "part: found store, but its servers are the lock's"),
        (PAIR, "link:loss=0.1,peers=store,who=store1,at=1s", 'peers: found store; "store1" has'),
        (ETCD, "authority:f=renew", "f: found renew, but a grant of etcd is more than"),
        (PAIR, "clock:jump=90000h", "jump: found 3.24e+08s; allowed: ten years at most"),
        (PAIR, "clock:jump=1s,strobe=1us", "strobe: found 0.001ms; allowed: 1ms or more"),
        (PAIR, "pause:who=server:2,at=1s", "allowed: server:1 to server:1"),
        (PAIR, "pause:by=freezer", "by: found freezer, which only containers have"),
        (
            DOCKER,
            "disk:what=read-only,who=store,at=1s",
            "what: found read-only; allowed in contain",
        ),
    ],
)
def test_an_impossible_fault_is_refused(run: dict[str, str], fault: str, words: str) -> None:
    assert words in refusal(run, fault)


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (PAIR, "partition:shape=worker-lock"),
        (PAIR, "partition:shape=worker-store,who=worker:2"),
        (PAIR, "partition:shape=isolate,who=store,at=1s"),
        (PAIR, "partition:shape=isolate,scope=servers,who=lock1,at=1s"),
        (PAIR, "partition:shape=grudge,pairs=a1>store1"),
        (ETCD, "partition:shape=majority,who=leader,at=1s"),
        (ETCD, "partition:shape=bridge"),
        (PAIR, "disk:what=full,who=store,at=1s"),
        (ETCD, "amnesia:who=minority,at=1s"),
        (ETCD, "membership:who=follower,at=1s"),
        (PAIR, "message:who=store,part=store,at=1s"),
        (BOTH, "message:who=leader,at=1s"),
        (ETCD, "link:delay=1ms,peers=servers,who=leader,at=1s"),
        (PAIR, "authority:f=renew"),
        (PAIR, "clock:jump=2leases,strobe=1ms"),
        (PAIR, "kill:who=server:1,at=1s"),
        (PAIR, "pause:by=sigstop"),
        (DOCKER, "pause:by=freezer"),
        (DOCKER, "disk:what=full,who=store,at=1s"),
    ],
)
def test_a_possible_fault_is_not(run: dict[str, str], fault: str) -> None:
    assert refusal(run, fault) == ""


COMPOSED = "services: {etcd1: {}, etcd2: {}, other: {}}"


@pytest.mark.parametrize(
    ("compose", "who", "refused"),
    [
        (COMPOSED, "etcd2", "the compose file brings up etcd2, whose data"),
        (COMPOSED, "leader", "the compose file brings up etcd1, etcd2, whose data"),
        (COMPOSED, "etcd3", ""),  # which is started by us
        (COMPOSED, "store", ""),
        ("services: [no, mapping]", "etcd2", ""),  # what is wrong with it is told by compose
        ("}", "etcd2", ""),
    ],
)
def test_data_of_a_compose_files_servers_is_out_of_reach(
    tmp_path: Path, compose: str, who: str, refused: str
) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(compose)
    run = ETCD | {"compose": str(file), "servers": "etcd*"}
    for fault in ("amnesia", "disk:what=full", "disk:what=flip"):
        asked = f"{fault}{',' if ':' in fault else ':'}who={who},at=1s"
        said = refusal(run, asked)
        assert refused in said if refused else said == ""
    assert refusal(run, f"clock:jump=1h,who={who},at=1s") == ""


def test_a_compose_file_that_is_missing_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("missing.yml", "folder"):
        with pytest.raises(UsageError, match=rf"compose: there is no file .*{name}"):
            from_values(ETCD | {"compose": str(tmp_path / name)})


def test_it_is_said_like_any_other_mistake() -> None:
    text = """
lock: etcd[nodes=1]
store: valkey
workers: 0
faults:
  - kind: partition
    shape: majority
    who: all
    at: 2s
  - disk:what=full
"""
    with pytest.raises(UsageError) as told:
        read(text)
    lines = str(told.value).splitlines()
    assert lines[0].startswith("run.yaml:4:10: workers: found 0")
    assert len(lines) == 1  # who is there is not known yet
    with pytest.raises(UsageError) as told:
        read(text.replace("workers: 0", "workers: 2"))
    assert [line.split(" found ")[0] for line in str(told.value).splitlines()] == [
        "run.yaml:7:12: faults[0].shape:",
        "run.yaml:10:5: faults[1].who:",
    ]


def test_of_a_flag_it_says_which() -> None:
    flags: Flags = {(key,): value for key, value in PAIR.items()}
    faults = ["pause:who=holder", "disk:what=full"]
    with pytest.raises(UsageError) as told:
        from_flags({**flags, ("faults",): faults})
    assert str(told.value).startswith('--fault number 2: who: found "holder"; workers keep no data')


def test_a_processor_that_is_not_in_the_table_is_named() -> None:
    here = Cast(lock=Etcd(), store=Valkey(), lock_servers=["s"], store_servers=[], workers=["w1"])
    fault = Clock(jump="1s")
    assert fault.impossible(here) is None  # not known: a host that is asked later
    assert fault.impossible(dataclasses.replace(here, machine="x86_64")) is None
    refused = fault.impossible(dataclasses.replace(here, machine="riscv64"))
    assert refused is not None
    assert (refused.path, "(riscv64)" in refused.text) == (("kind",), True)


def test_a_target_for_both_parts_tells_its_servers_apart_by_role() -> None:
    lock, store = Server("a", ["x"], 1, role="lock"), Server("b", ["x"], 2, role="store")
    assert by_part([lock, store], None) == {"lock": ["a"], "store": ["b"]}
    assert by_part([lock], None) == {"lock": ["a"], "store": ["a"]}
    assert by_part([lock], [store]) == {"lock": ["a"], "store": ["b"]}
    assert by_part([lock], []) == {"lock": ["a"], "store": []}


class Everybody:
    """Workers that all say that they hold and wait; a leader that is always another."""

    def __init__(self, workers: list[str], servers: list[str]) -> None:
        self.seats = dict.fromkeys(workers)
        self._workers = itertools.cycle(name for name in workers if name.startswith("w"))
        self._servers = itertools.cycle(servers)

    def workers_that(self, _what: str) -> list[str]:
        return [next(self._workers)]

    def leader(self, _cluster: object) -> str:
        return next(self._servers)


@pytest.mark.parametrize(
    "who",
    [
        *("holder", "waiter", "reader", "leader", "follower", "minority", "majority"),
        *("all", "store", "server:2", "worker:1", "w2", "e3", "s1"),
    ],
)
def test_whoever_a_role_turns_out_to_be_was_thought_of(who: str) -> None:
    lock, store, workers = ["e1", "e2", "e3"], ["s1"], ["w1", "w2", "r1"]
    there = Everybody(workers, lock)
    nodes = cast("dict[str, Node]", {name: name for name in [*lock, *store, *workers]})
    roles = Roles(
        nodes, {"lock": lock, "store": store}, cast("Any", there), cast("Any", (there, None))
    )
    plan = Cast(
        lock=make("targets", "etcd", {}),
        store=make("targets", "valkey", {}),
        lock_servers=lock,
        store_servers=store,
        workers=["w1", "w2"],
        readers=["r1"],
        who=who,
    )

    async def seen() -> set[tuple[str, ...]]:
        return {tuple(cast("list[str]", await roles.nodes(who))) for _ in range(6)}

    found = asyncio.run(seen())
    assert found
    assert found <= set(plan.meant)


def test_a_leader_that_cannot_be_told_is_no_leader_yet() -> None:
    """The target's own code is asked while its servers are out: it may fail in any way."""
    answers: Iterator[str | Exception] = iter([KeyError("leader"), "e9", "e2"])

    class Confused:
        def leader(self, _cluster: object) -> str:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    lock = ["e1", "e2", "e3"]
    nodes = cast("dict[str, Node]", {name: name for name in lock})
    asked = cast("Any", (Confused(), None))
    roles = Roles(nodes, {"lock": lock, "store": []}, cast("Any", None), asked)
    told: list[Any] = [
        (asyncio.run(roles.nodes("leader")), roles.why_nobody("leader")) for _ in range(3)
    ]
    assert told == [
        ([], "leader() raised KeyError: 'leader'"),
        ([], "leader said 'e9', which is no server of the lock"),
        (["e2"], ""),
    ]
    assert roles.why_nobody("waiter") == ""
