"""Link: packets between some nodes are late, lost, doubled, out of order, or too many for the line.

This is an overloaded switch, a long way, a bad cable, a radio.  It attacks time-outs that were
chosen on a quiet network, renewals that leave in time and arrive too late, and whoever takes "it
arrived once" or "it arrived in order" for granted.  Each direction of a link is bad by itself.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from harness.cast import Cast
from harness.mistakes import Mistake, show
from harness.node import Node
from harness.shape import Shape
from harness.site import Burst, Links, Pair, Site
from harness.units import parse_seconds
from harness.window import Proof
from nemesis import _quality, grudges

_MEASURED_MAX = 6

Seconds = Annotated[float, BeforeValidator(parse_seconds)]
Share = Annotated[float, Field(ge=0, le=1)]
Peers = Literal["all", "servers", "lock", "store", "workers"]


def _time(text: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "description": text})


class Link:
    """Delay, lose, double, reorder or slow down what passes between nodes."""

    name = "link"

    class Options(BaseModel):
        """Options of the fault `link`; at least one thing must be bad."""

        model_config = ConfigDict(extra="forbid")

        delay: Annotated[Seconds, _time("how much later packets arrive, one way")] = 0.0
        jitter: Annotated[Seconds, _time("so much more or less than the delay; in order")] = 0.0
        loss: Share = Field(0.0, description="share of packets lost")
        duplicate: Share = Field(0.0, description="share of packets that arrive twice")
        reorder: Share = Field(0.0, description="share of packets that later ones overtake")
        rate: float | None = Field(None, gt=0, description="throughput at most, in bytes a second")
        direction: Literal["both", "in", "out"] = Field(
            "both", description="packets from and to `who`, only to it, or only from it"
        )
        peers: Peers = Field("all", description="between `who` and which others")

        @model_validator(mode="after")
        def _something_is_bad(self) -> Self:
            if not (self.delay or self.loss or self.duplicate or self.reorder or self.rate):
                raise ValueError("give delay, loss, duplicate, reorder or rate")
            if self.jitter > self.delay:
                raise ValueError("jitter is more than delay, so packets would arrive early")
            return self

    def __init__(self, **options: Any) -> None:
        self.options = given = self.Options(**options)
        self._owner = f"link {id(self)}"
        self._shape = Shape(
            given.delay, given.jitter, given.loss, given.duplicate, given.reorder, given.rate
        )

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when there are links between `who` and its peers, else why not."""
        everyone = [*cast.servers, *cast.clients]
        places = grudges.Places(cast.lock_servers, cast.store_servers, everyone)
        if any(self._between(places, names) for names in cast.meant):
            return None
        text = f"found {self.options.peers}; {show(cast.who)} has no such peers here"
        return Mistake(("peers",), text)

    def available(self, site: Site) -> str | None:
        """Return None when this place can make links bad, else why not."""
        if site.links is None:
            return "this backend cannot make links bad"
        return site.links.unavailable()

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the pairs; the engine ends with the run."""
        return {"what": "unshape", "pairs": grudges.show(self._wanted(site, nodes))}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Make the links bad."""
        await _links(site).shape(self._owner, self._wanted(site, nodes), self._shape)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Send a burst over some of the pairs, and over the ways back that should be good."""
        pairs = self._wanted(site, nodes)
        if not pairs:
            named = ", ".join(node.name for node in nodes)
            return Proof(holds=False, text=f"{named} has no such peers")
        chosen = self._measured(site, pairs)
        if not chosen:
            return Proof(holds=None, text="a partition cuts these links: nothing to measure")
        backs = self._backs(site, chosen, pairs)
        plan = _quality.plan(self._shape, len(chosen) + len(backs))
        now = await self._measure(site, [*chosen, *backs], plan)
        signs = {
            pair: list(_quality.signs(self._shape, self._others(site, pair), now[pair]))
            for pair in chosen
            if pair in now
        }
        hit = [p for p in backs if p in now and not _quality.is_good(self._shape, now[p])]
        seen = {sign.seen for found in signs.values() for sign in found} or {None}
        text = f"{len(signs)} of {len(pairs)} directed pairs measured: " + "; ".join(
            f"{a}>{b} {', '.join(sign.text for sign in found)}" for (a, b), found in signs.items()
        )
        if hit:
            text += f"; {', '.join(grudges.show(hit))} should be good and is not"
        holds = False if hit or False in seen else None if None in seen else True
        return Proof(holds=holds, text=text, facts=_facts(pairs, now))

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Make the links good again."""
        await _links(site).unshape(self._owner)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Send a burst over the same pairs, as far as no other fault has them."""
        free = self._measured(site, self._wanted(site, nodes))
        free = [pair for pair in free if pair not in _links(site).shaped_now()]
        if not free:
            return Proof(holds=True, text="other faults have all of these links")
        whole = self._shape.rate_bytes_s is None
        plan = _quality.plan(Shape() if whole else self._shape, len(free))
        now = await self._measure(site, free, plan)
        bad = [p for p in now if not _quality.is_good(self._shape, now[p])]
        text = f"{len(now) - len(bad)} of {len(now)} directed pairs measured are good again"
        if bad:
            text += f" ({', '.join(grudges.show(bad))} not)"
        return Proof(holds=not bad, text=text, facts=_facts(free, now))

    async def _measure(
        self, site: Site, pairs: Sequence[Pair], plan: _quality.Plan
    ) -> Mapping[Pair, Burst]:
        """Measure, and leave out what a partition cut meanwhile, or another fault made bad."""
        links = _links(site)
        began_s = time.monotonic()
        now = await links.measure(pairs, plan.count, plan.size_bytes, plan.gap_s, plan.wait_s)
        spoilt = site.network.cut_since(began_s) if site.network else frozenset()
        return {pair: burst for pair, burst in now.items() if pair not in spoilt}

    def _wanted(self, site: Site, nodes: Sequence[Node]) -> grudges.Pairs:
        places = grudges.Places(site.lock_servers, site.store_servers, list(site.nodes))
        return self._between(places, [node.name for node in nodes])

    def _between(self, places: grudges.Places, who: Sequence[str]) -> grudges.Pairs:
        others: Mapping[Peers, Iterable[str]] = {
            "all": places.everyone,
            "servers": [*places.lock, *places.store],
            "lock": places.lock,
            "store": places.store,
            "workers": places.clients,
        }
        peers = [name for name in others[self.options.peers] if name not in who]
        outward = grudges.product(who, peers)
        inward = grudges.product(peers, who)
        return {"both": outward | inward, "in": inward, "out": outward}[self.options.direction]

    def _measured(self, site: Site, pairs: Iterable[Pair]) -> list[Pair]:
        """Choose pairs to measure, spread evenly; over a cut one nothing would arrive."""
        cut = site.network.cut_now() if site.network else frozenset()
        ranked = sorted(set(pairs) - cut)
        return ranked[:: max(1, -(-len(ranked) // _MEASURED_MAX))]

    def _backs(self, site: Site, chosen: Iterable[Pair], pairs: Iterable[Pair]) -> list[Pair]:
        """The other directions, where they must stay good."""
        busy = {*pairs, *_links(site).shaped_now()}
        if site.network:
            busy |= site.network.cut_now()
        return [(b, a) for a, b in chosen if (b, a) not in busy]

    def _others(self, site: Site, pair: Pair) -> Shape:
        """Return what other faults do to a pair."""
        return _links(site).shaped_now(but=self._owner).get(pair, Shape())


def _links(site: Site) -> Links:
    assert site.links is not None, "asked by available()"
    return site.links


def _facts(pairs: Iterable[Pair], now: Mapping[Pair, Burst]) -> dict[str, Any]:
    measured = {
        f"{a}>{b}": {
            "delay_ms": None if burst.delay_s is None else round(burst.delay_s * 1000, 3),
            "sent": burst.sent,
            "lost": burst.lost,
            "doubled": burst.doubled,
            "swapped": burst.swapped,
        }
        for (a, b), burst in sorted(now.items())
    }
    return {"pairs": grudges.show(pairs), "measured": measured}
