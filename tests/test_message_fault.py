"""The fault `message` on paper: its options, what it waits for, and what it takes for proof."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from harness.errors import UsageError
from harness.node import Node
from harness.plugins import make
from harness.site import Site
from harness.trick import Hit, Part, Trick
from harness.window import Proof
from nemesis.message import Message

NOTHING = Hit("w1", "etcd1", 0, 0, 0, worker_open=True, server_open=True, reset=False)
DELIVERED = replace(NOTHING, delivered=10, answered=5)


@dataclass
class PaperNode:
    """A name, which is all that a message fault asks of a node."""

    name: str


@dataclass
class PaperMessages:
    """Hits as given, which end when they are told to, or not."""

    found: list[Hit] = field(default_factory=list)
    stubborn: bool = False
    armed: dict[str, tuple[Trick, Collection[str]]] = field(default_factory=dict)

    def unavailable(self, part: Part) -> str | None:
        return None if part == "lock" else "the store has no server process of its own"

    async def arm(self, owner: str, trick: Trick, nodes: Collection[str]) -> None:
        self.armed[owner] = (trick, nodes)

    async def disarm(self, owner: str) -> None:
        self.armed.pop(owner, None)
        if not self.stubborn:
            self.found = [replace(h, worker_open=False, server_open=False) for h in self.found]

    async def hits(self, owner: str) -> Sequence[Hit]:
        return self.found


def proof(what: str, *hits: Hit) -> Proof:
    """Return what the fault says while these messages have come by."""
    messages = PaperMessages(list(hits))
    fault = Message(what=what)

    async def live() -> Proof:
        site = Site({}, messages=messages)
        nodes = [cast("Node", PaperNode("w1"))]
        await fault.start(site, nodes)
        ((trick, named),) = messages.armed.values()
        assert trick.what == what
        assert named == ["w1"]
        return await fault.in_force(site, nodes)

    return asyncio.run(live())


@pytest.mark.parametrize(
    ("what", "shown", "other"),
    [
        ("lose-reply", DELIVERED, replace(DELIVERED, returned=5)),
        ("lose-reply", DELIVERED, replace(DELIVERED, answered=0)),
        ("lose-request", NOTHING, DELIVERED),
        ("reset-after-delivery", replace(DELIVERED, reset=True), DELIVERED),
        ("reset-after-delivery", replace(DELIVERED, reset=True), replace(NOTHING, reset=True)),
        ("half-open", replace(NOTHING, server_open=False), NOTHING),
        ("slow-close", replace(DELIVERED, returned=5, worker_open=False), DELIVERED),
    ],
)
def test_each_trick_is_proven_by_its_counts(what: str, shown: Hit, other: Hit) -> None:
    assert proof(what, shown).holds is True
    assert proof(what, other).holds is None
    assert proof(what, other, shown).holds is True
    assert proof(what).holds is None


def test_a_connection_that_still_stands_is_not_gone() -> None:
    async def live(messages: PaperMessages) -> Proof:
        fault = Message()
        site = Site({}, messages=messages)
        await fault.stop(site, [])
        return await fault.gone(site, [])

    assert asyncio.run(live(PaperMessages([DELIVERED]))).holds
    assert not asyncio.run(live(PaperMessages([DELIVERED], stubborn=True))).holds
    assert asyncio.run(live(PaperMessages())).holds


def test_a_place_without_proxies_or_servers_says_so() -> None:
    assert Message().available(Site({})) == "this backend has no proxy between workers and servers"
    site = Site({}, messages=PaperMessages())
    assert Message().available(site) is None
    refused = Message(part="store").available(site)
    assert refused == "the store has no server process of its own"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"what": "shout"}, "what"),
        ({"part": "both"}, "part"),
        ({"match": "("}, "no regular expression"),
        ({"messages": 0}, "messages"),
        ({"count": 2}, "count"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make("faults", "message", options)
