"""Message: one message between a worker and a server is lost, or answered by silence or a reset.

This is the publication whose response is lost: a proxy, a load balancer or a failing network takes
the request along and not the answer back.  It attacks the belief that a call which failed did
nothing, and the retry that is built on it: the first try took the lock, the second is refused by
it.  A proxy stands between each worker and each server of the part; whether the request was
delivered and nothing came back is read from the kernel's byte counts of both connections.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness.cast import Cast
from harness.mistakes import Mistake, show
from harness.node import Node
from harness.site import Messages, Site
from harness.trick import Hit, Part, Trick, What
from harness.window import Proof

# Whether what was asked for can be seen to have happened to a message, and how that is called.
_SHOWN: dict[What, tuple[Callable[[Hit], bool], str]] = {
    "lose-reply": (
        lambda hit: hit.delivered > 0 and hit.answered > 0 and hit.returned == 0,
        "delivered and answered, and nothing came back",
    ),
    "lose-request": (lambda hit: hit.delivered == 0, "not delivered"),
    "reset-after-delivery": (
        lambda hit: hit.delivered > 0 and hit.returned == 0 and hit.reset,
        "delivered, and answered by a reset",
    ),
    "half-open": (
        lambda hit: hit.delivered == 0 and not hit.server_open,
        "not delivered, and the server's end of the connection is gone",
    ),
    "slow-close": (
        lambda hit: hit.returned > 0 and not hit.worker_open,
        "answered, and the worker's end of the connection closed",
    ),
}


class Message:
    """Lose a request or its reply, or end its connection for one side only."""

    name = "message"

    class Options(BaseModel):
        """Options of the fault `message`; it happens to the first messages within the window."""

        model_config = ConfigDict(extra="forbid")

        what: What = Field("lose-reply", description="what happens to the message")
        part: Part = Field("lock", description="messages to the lock service, or to the store")
        match: str | None = Field(
            None, description="regular expression to be found in the request's bytes, like SET.*NX"
        )
        messages: int = Field(1, ge=1, le=1000, description="to how many it happens")

        @field_validator("match")
        @classmethod
        def _compiles(cls, value: str | None) -> str | None:
            try:
                re.compile(value or "")
            except re.error as error:
                raise ValueError(f"{value!r} is no regular expression: {error}") from error
            return value

    def __init__(self, **options: Any) -> None:
        given = self.Options(**options)
        match = re.compile(given.match.encode(), re.DOTALL) if given.match is not None else None
        self._trick = Trick(given.what, given.part, match, given.messages)
        self._owner = f"message {id(self)}"

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when workers and servers of the part exchange messages, else why not."""
        part = self._trick.part
        servers = {"lock": cast.lock_servers, "store": cast.store_servers}[part]
        if not servers:
            return Mistake(("part",), f"found {part}, but the {part} has no server of its own")
        if part == "store" and set(servers) & set(cast.lock_servers):
            both = "found store, but its servers are the lock's as well; allowed: lock"
            return Mistake(("part",), both)
        if any({*cast.clients, *servers} & set(names) for names in cast.meant):
            return None
        allowed = f"a worker, or a server of the {part}"
        text = f"found {show(cast.who)}, which has no messages with the {part}; allowed: {allowed}"
        return Mistake(("who",), text)

    def available(self, site: Site) -> str | None:
        """Return None when a proxy can stand between workers and that part, else why not."""
        if site.messages is None:
            return "this backend has no proxy between workers and servers"
        return site.messages.unavailable(self._trick.part)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Say what is played; it ends with the proxies."""
        return {"what": "disarm", "trick": self._trick.what, "part": self._trick.part}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Lie in wait; in force when the first message has come by."""
        await _messages(site).arm(self._owner, self._trick, [node.name for node in nodes])

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look at the byte counts of the connections of the messages that came by."""
        hits = await _messages(site).hits(self._owner)
        shown, words = _SHOWN[self._trick.what]
        if not hits:
            return Proof(holds=None, text="no such message has come by")
        proven = [hit for hit in hits if shown(hit)]
        return Proof(
            holds=True if proven else None,
            text=f"{len(proven)} of {len(hits)} messages {words} (TCP_INFO)",
            facts={"hits": [asdict(hit) for hit in hits]},
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Let everything pass, and end the connections that were spoilt."""
        await _messages(site).disarm(self._owner)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Look whether one of the spoilt connections still stands."""
        hits = await _messages(site).hits(self._owner)
        standing = sum(hit.worker_open or hit.server_open for hit in hits)
        text = f"{len(hits) - standing} of {len(hits)} spoilt connections have ended (TCP_INFO)"
        return Proof(holds=standing == 0, text=text)


def _messages(site: Site) -> Messages:
    assert site.messages is not None, "asked by available()"
    return site.messages
