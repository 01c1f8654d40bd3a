"""Partition: packets between some nodes vanish, in one direction or both.

This is what a broken switch, a wrong firewall rule, a half-dead cable or a lost route does.  It
attacks the belief that whoever does not answer is dead, and that whoever cannot reach the lock
service knows it: the nastiest shape cuts the holder from the lock service only (`worker-lock`), so
that its lease runs out while it still reaches the data.  By default nobody is told; with `reject`
senders get a TCP reset, as from a firewall that refuses.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.adversary import WORKER
from harness.cast import Cast
from harness.mistakes import Mistake, show
from harness.node import Node
from harness.shape import slowest_s
from harness.site import Network, Pair, Passage, Site
from harness.window import Proof
from nemesis import grudges

_OTHERS_MAX = 8


class Partition:
    """Stop packets between nodes, silently or with a reset, in one direction or both."""

    name = "partition"

    class Options(BaseModel):
        """Options of the fault `partition`."""

        model_config = ConfigDict(extra="forbid")

        shape: grudges.Shape = Field(
            "isolate",
            description="isolate, one-way-in, one-way-out, worker-lock, worker-store: of `who`;"
            " halves, majority (`who` on the smaller side), ring, bridge (`who` in the middle):"
            " of the servers; grudge: what `pairs` says",
        )
        scope: grudges.Scope | None = Field(
            None,
            description="which links it may cut: between servers, those of workers, or all; all"
            " for one node, servers for halves and majority",
        )
        pairs: str | None = Field(None, description="for grudge: directed pairs, w1>etcd2 etcd2>w1")
        reject: bool = Field(default=False, description="tell senders with a TCP reset")

        @field_validator("pairs")
        @classmethod
        def _readable(cls, value: str | None) -> str | None:
            if value is not None:
                grudges.parse(value)
            return value

        @model_validator(mode="after")
        def _belong_together(self) -> Self:
            if (self.shape == "grudge") != (self.pairs is not None):
                raise ValueError("pairs belongs to shape=grudge, and is needed there")
            if self.scope is not None and self.shape not in grudges.SCOPED:
                raise ValueError(f"scope means nothing for shape={self.shape}")
            return self

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._owner = f"partition {id(self)}"
        self._pairs: grudges.Pairs = frozenset()
        self._listed = grudges.parse(self.options.pairs) if self.options.pairs else frozenset()

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return why the shape cuts nothing between these nodes, None when it cuts something."""
        shape, lock = self.options.shape, len(cast.lock_servers)
        everyone = [*cast.servers, *cast.clients]
        if strange := {name for pair in self._listed for name in pair} - {*everyone, WORKER}:
            text = f"there is no node {', '.join(sorted(strange))}; allowed: {', '.join(everyone)}"
            return Mistake(("pairs",), text)
        if lock < grudges.LOCK_SERVERS_MIN.get(shape, 0):
            needed = grudges.LOCK_SERVERS_MIN[shape]
            text = f"found {shape}, which needs {needed} lock servers or more; there are {lock}"
            return Mistake(("shape",), text)
        if shape == "worker-store" and set(cast.store_servers) <= set(cast.lock_servers):
            return Mistake(("shape",), f"found {shape}, but the store has no servers of its own")
        if shape == "worker-lock" and not lock:
            return Mistake(("shape",), f"found {shape}, but the lock service has no servers here")
        places = grudges.Places(cast.lock_servers, cast.store_servers, everyone)
        if any(self._between(places, names) for names in cast.meant):
            return None
        workers = "; allowed: a worker" if shape in ("worker-lock", "worker-store") else ""
        scope = f" and scope={self._scope}" if shape in grudges.SCOPED else ""
        text = f"found {show(cast.who)}, which shape={shape}{scope} cuts off from nothing{workers}"
        return Mistake(("who",), text)

    def available(self, site: Site) -> str | None:
        """Return None when this place has the network for it, else why not."""
        if site.network is None:
            return "this backend cannot stop packets"
        if strange := {name for pair in self._listed for name in pair} - site.nodes.keys():
            return f"there is no node {', '.join(sorted(strange))}"
        return site.network.unavailable(reject=self.options.reject)

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Name the pairs; the rules themselves end with the sandbox."""
        return {"what": "mend", "pairs": grudges.show(self._wanted(site, nodes))}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Cut; in force when this returns."""
        self._pairs = self._wanted(site, nodes)
        await _network(site).cut(self._owner, self._pairs, reject=self.options.reject)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Send over every pair that must be cut, and over some that nobody cuts."""
        if not self._pairs:
            named = ", ".join(node.name for node in nodes)
            return Proof(holds=False, text=f"shape={self.options.shape} means nothing for {named}")
        network = _network(site)
        others = self._others(site)
        wanted = sorted(self._pairs)
        passed = await network.passes([*wanted, *others], _slow_s(site, wanted))
        leaking = [pair for pair in wanted if not passed[pair].nothing]
        # Another fault may have cut or spoilt some of them meanwhile.
        others = [pair for pair in others if pair not in self._spoilt(site)]
        silent = [pair for pair in others if not passed[pair].whole]
        untold = self._untold(wanted, passed)
        stopped = await network.stopped_packets()
        text = f"{len(wanted) - len(leaking)} of {len(wanted)} directed pairs let nothing through"
        if leaking:
            text += f" ({', '.join(grudges.show(leaking))} did)"
        text += f"; {len(others) - len(silent)} of {len(others)} others tried pass"
        if untold:
            text += f"; {', '.join(grudges.show(untold))} did not refuse"
        return Proof(
            holds=not (leaking or silent or untold),
            text=text,
            facts={
                "cut": grudges.show(self._pairs),
                "tried": grudges.show(others),
                "leaking": grudges.show(leaking),
                "silent": grudges.show(silent),
                "stopped_packets": stopped,
            },
            age_s=_age_s(passed),
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Mend what this fault cut."""
        await _network(site).mend(self._owner)

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Send over every pair that was cut and that no other fault cuts still."""
        network = _network(site)
        free = sorted(self._pairs - network.cut_now())
        if not free:
            return Proof(holds=True, text="another partition cuts the same pairs")
        passed = await network.passes(free, _slow_s(site, free))
        silent = [pair for pair in free if not passed[pair].whole]
        text = f"{len(free) - len(silent)} of {len(free)} directed pairs pass again"
        if silent:
            text += f" ({', '.join(grudges.show(silent))} do not)"
        facts = {"silent": grudges.show(silent)}
        return Proof(holds=not silent, text=text, facts=facts, age_s=_age_s(passed))

    def _wanted(self, site: Site, nodes: Sequence[Node]) -> grudges.Pairs:
        places = grudges.Places(site.lock_servers, site.store_servers, list(site.nodes))
        return self._between(places, [node.name for node in nodes])

    def _between(self, places: grudges.Places, who: Sequence[str]) -> grudges.Pairs:
        return grudges.grudge(self.options.shape, places, who, self._scope, self._listed)

    @property
    def _scope(self) -> grudges.Scope:
        by_default: grudges.Scope = "servers" if self.options.shape in grudges.SPLITS else "all"
        return self.options.scope or by_default

    def _others(self, site: Site) -> list[Pair]:
        """Choose pairs that must pass: ways back of one-way cuts first, then some of the rest."""
        spoilt = self._spoilt(site)
        back = sorted({(b, a) for a, b in self._pairs} - spoilt)
        rest = sorted(grudges.product(site.nodes, site.nodes) - spoilt - set(back))
        rest = [pair for pair in rest if pair[0] != pair[1]]
        room = max(0, _OTHERS_MAX - len(back))
        return [*back, *rest[:: max(1, -(-len(rest) // room))]] if room else back

    def _spoilt(self, site: Site) -> set[Pair]:
        """Return what is cut, and what another fault makes bad: not this fault's doing."""
        shaped = set(site.links.shaped_now()) if site.links else set()
        return {*_network(site).cut_now(), *shaped, *(pair[::-1] for pair in shaped)}

    def _untold(self, wanted: Sequence[Pair], passed: Mapping[Pair, Passage]) -> list[Pair]:
        """Return the pairs whose sender should have been told, and was not."""
        if not self.options.reject:
            return []
        return [pair for pair in wanted if passed[pair].new is False and not passed[pair].refused]


def _network(site: Site) -> Network:
    assert site.network is not None, "asked by available()"
    return site.network


def _age_s(passed: Mapping[Pair, Passage]) -> float:
    """How long ago the last of it was sent: what did not arrive did not pass from then on."""
    return time.monotonic() - max(passage.sent_s for passage in passed.values())


def _slow_s(site: Site, pairs: Iterable[Pair]) -> float:
    """How much longer a request and its answer may take because of bad links."""
    if site.links is None:
        return 0.0
    shaped = site.links.shaped_now()
    ways = {way for pair in pairs for way in (pair, pair[::-1])}
    return 2 * slowest_s(shape for pair, shape in shaped.items() if pair in ways)
