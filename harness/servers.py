"""Starting the servers of a run, knowing when they can serve, and noticing when they end.

A server that ends or does not answer in time at the start stops the run with the last lines of its
log: that is an error of the set-up, never a finding.  What an end means later is `harness.upkeep`'s
business.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.backend import Lab, Reached
from harness.bounded import call
from harness.cast import by_part
from harness.cluster import command, places, records_of
from harness.errors import TargetError
from harness.folder import RunFolder
from harness.site import SecretFolder
from harness.target import (
    Answers,
    Cluster,
    Place,
    Ready,
    Secretive,
    Secrets,
    Server,
    Target,
    Versioned,
)
from harness.text import tail

PARTS = ("lock", "store")
START_S = 90.0  # three JVMs on a busy machine need a minute
CALL_S = 30.0
_REACH_S = 1.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Parts:
    """The targets of a run; one object when one target plays both parts."""

    lock: Target
    store: Target

    @property
    def targets(self) -> list[Target]:
        """Each target once."""
        return [self.lock] if self.lock is self.store else [self.lock, self.store]

    @property
    def servers(self) -> list[Server]:
        """All servers of all targets."""
        return [server for target in self.targets for server in target.servers()]

    @property
    def fence(self) -> str:
        """What the store does with tokens."""
        return str(getattr(self.store, "fence", "none"))

    def seen_by(self, view: Callable[[Target], Target]) -> "Parts":
        """Return the parts with each target replaced by a view of it."""
        lock = view(self.lock)
        return Parts(lock, lock if self.lock is self.store else view(self.store))

    def names(self) -> dict[str, Sequence[str]]:
        """The names of the servers by the part that they play."""
        one = self.lock is self.store
        return by_part(self.lock.servers(), None if one else self.store.servers())

    def versions(self, attached: frozenset[str] = frozenset()) -> dict[str, str]:
        """What each target says of its version, unless all its servers are somebody else's."""
        said = {}
        for target in self.targets:
            names = {server.name for server in target.servers()}
            if isinstance(target, Versioned) and not (names and names <= attached):
                said[target.name] = target.version()
        return said


class Servers:
    """The server processes of one run.

    `when_ended(name, how)` is told of every end, whoever ordered it.
    """

    def __init__(self, parts: Parts, lab: Lab, folder: RunFolder) -> None:
        self._parts = parts
        self._lab = lab
        self._folder = folder
        self._ended: dict[str, str] = {}
        self._clusters = [places(target.servers(), lab.nodes) for target in parts.targets]
        self._homes = {
            server.name: (target, server, cluster)
            for target, cluster in zip(parts.targets, self._clusters, strict=True)
            for server in target.servers()
        }
        self.when_ended: Callable[[str, str], None] = lambda _name, _how: None
        self.secrets: dict[str, Mapping[str, str]] = {}

    @property
    def lock_cluster(self) -> Cluster:
        """Where the lock service runs."""
        return self._clusters[0]

    @property
    def store_cluster(self) -> Cluster:
        """Where the store runs."""
        return self._clusters[-1]

    def records(self) -> dict[str, list[Mapping[str, Any]]]:
        """The places of both parts, for the workers."""
        return {"lock": records_of(self.lock_cluster), "store": records_of(self.store_cluster)}

    async def start(self) -> None:
        """Start all servers and wait until they can serve.  Raises TargetError."""
        for part, target, cluster in zip(PARTS, self._parts.targets, self._clusters, strict=False):
            if isinstance(target, Secretive) and (made := target.make_secrets(cluster)):
                self._hand_out(target, cluster, made)
                self.secrets[part] = made.known
        for name in self._homes:
            self.start_one(name)
        for target, cluster in zip(self._parts.targets, self._clusters, strict=True):
            await self._await_ready(target, cluster)

    def _hand_out(self, target: Secretive, cluster: Cluster, made: Secrets) -> None:
        """Put secrets where they are needed, and nowhere else.  Raises TargetError."""
        for server, files in made.files.items():
            node = self._lab.nodes[server]
            if not isinstance(node, SecretFolder):
                raise TargetError(f"server {server} is not started here, and takes no secrets")
            try:
                for name, data in files.items():
                    node.keep_secret(f"{cluster[server].secrets}/{name}", data)
            except OSError as error:
                raise TargetError(f"server {server} cannot be given secrets: {error}") from error
        target.know(cluster, made.known)

    def start_one(self, name: str, otherwise: Server | None = None) -> None:
        """Start a server, or what stands in for it, on its data as it lies.  Raises TargetError."""
        _, server, cluster = self._homes[name]
        try:
            argv, env = command(otherwise or server, cluster)
            node = self._lab.nodes[name]
            spawned = node.spawn(argv, log=self._folder.log(name), env=env, cwd=node.data)
        except (OSError, ValueError) as error:
            raise TargetError(f"server {name} cannot be started: {error}") from error
        self._ended.pop(name, None)
        spawned.watch(asyncio.get_running_loop(), lambda how: self._exited(name, how))

    def _exited(self, name: str, how: str) -> None:
        self._ended[name] = how
        self.when_ended(name, how)

    def ended(self, name: str) -> str | None:
        """How a server ended, None while it runs."""
        return self._ended.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._homes

    def place(self, name: str) -> Place:
        """Where a server runs."""
        return self._homes[name][2][name]

    async def knock(self, name: str, bound_s: float) -> Reached:
        """Connect to a server's port from a place that no fault cuts off."""
        return await self._lab.reach(self.place(name), bound_s)

    async def missing(self, name: str) -> str | None:
        """Return None when this one server answers, else what is missing."""
        target, _, cluster = self._homes[name]
        place = cluster[name]
        return await self._closed(place) or await call(_mute, target, place, bound_s=CALL_S)

    async def _closed(self, place: Place) -> str | None:
        reached = await self._lab.reach(place, _REACH_S)
        if reached == "accepted":
            return None
        return f"{place.name} does not answer at {place.endpoint} ({reached})"

    async def _await_ready(self, target: Target, cluster: Cluster) -> None:
        deadline = time.monotonic() + START_S
        while missing := await self._missing(target, cluster):
            self._raise_if_ended(cluster)
            if time.monotonic() > deadline:
                last = cluster.places[0].name
                raise TargetError(
                    f"{target.name} is not ready after {START_S:g} s: {missing}; "
                    f"{self.last_lines(last)}"
                )
            await asyncio.sleep(_POLL_S)

    async def _missing(self, target: Target, cluster: Cluster) -> str | None:
        """Return what a cluster still lacks to serve, None when it can."""
        for place in cluster.places:
            if deaf := await self._closed(place):
                return deaf
        return await call(_unready, target, cluster, bound_s=CALL_S)

    def _raise_if_ended(self, cluster: Cluster) -> None:
        for place in cluster.places:
            if place.name in self._ended:
                raise TargetError(
                    f"server {place.name} ended at the start with {self._ended[place.name]}; "
                    f"{self.last_lines(place.name)}"
                )

    def last_lines(self, name: str) -> str:
        """The last lines of a server's log, introduced."""
        with contextlib.suppress(OSError):
            if said := tail(self._folder.log(name).read_bytes()):
                return f"the last lines of {name}'s log:\n{said}"
        return f"{name}'s log is empty"


def _unready(target: Target, cluster: Cluster) -> str | None:
    if isinstance(target, Ready):
        try:
            return target.ready(cluster)
        except Exception as error:  # noqa: BLE001 - a target's own code: said, and asked again
            return f"ready() raised {type(error).__name__}: {error}"
    return None


def _mute(target: Target, place: Place) -> str | None:
    if isinstance(target, Answers):
        try:
            return target.answers(place)
        except OSError as error:
            return str(error)
    return None
