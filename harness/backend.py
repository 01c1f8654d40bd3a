"""Where a run lives: what a backend brings.

A backend is a module with three functions.  `require` and `launch` are called by outer, the process
that the user started; `build` by the harness, the process that lives the run.  What differs between
namespaces, containers and hosts is in here; nothing else knows where a run lives.
"""

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast, runtime_checkable

from harness.node import Node
from harness.site import Links, Messages, Network
from harness.spec import RunSpec
from harness.target import Place, Target
from harness.trick import Part

_MODULES = {
    "local": "harness.local.backend",
    "docker": "harness.docker.backend",
    "ssh": "harness.ssh.backend",
}
BACKENDS = tuple(_MODULES)

Reached = Literal["accepted", "refused", "silent"]


class Proxying(Messages, Protocol):
    """The proxies of a run: none until a fault asks for those of a part."""

    async def open(self) -> None:
        """Begin to take connections."""
        ...

    def addresses(
        self, worker: str, records: Mapping[str, list[Mapping[str, Any]]]
    ) -> dict[str, list[Mapping[str, Any]]]:
        """Return the records of a `hello` with the proxies' addresses where there are any."""
        ...


class Lab(Protocol):
    """All nodes of one run and the network between them.  What is None cannot be done there."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name."""
        ...

    @property
    def network(self) -> Network | None:
        """Cuts between nodes."""
        ...

    @property
    def links(self) -> Links | None:
        """Bad links between nodes."""
        ...

    @property
    def worker_argv(self) -> Sequence[str]:
        """The command that is a worker on a node."""
        ...

    def proxies(
        self, workers: Sequence[str], places: Mapping[Part, Sequence[Place]]
    ) -> Proxying | None:
        """Return what can play tricks on messages between workers and servers."""
        ...

    def distant(self, target: Target) -> Target:
        """Return the target as the harness may ask it.

        Same abilities; what needs the network of the run is done from inside of it.  Called once a
        target.
        """
        ...

    async def reach(self, place: Place, bound_s: float) -> Reached:
        """Connect to a server's port from a place that no fault cuts off."""
        ...


@runtime_checkable
class Watchful(Protocol):
    """Ability of a lab: notice by itself that something is amiss on a node."""

    def watch(self, report: Callable[[str], None]) -> None:
        """From now on, report it in the event loop that runs now."""
        ...


@runtime_checkable
class Factual(Protocol):
    """Ability of a lab: know what must be recorded of what runs there.

    `attached` names the servers that somebody else brought up, or that run on other machines.
    """

    @property
    def attached(self) -> Collection[str]:
        """No program of this machine says anything about them."""
        ...

    def facts(self) -> Mapping[str, str]:
        """Return it by name.  Raises HarnessError."""
        ...


@dataclass(frozen=True)
class Left:
    """How the life of a run ended, seen by outer: its exit code, and why it never began."""

    code: int
    never_began: str | None = None


class Backend(Protocol):
    """The module of a backend."""

    def require(self) -> None:
        """Raise HarnessError when this machine cannot have it at all, with what to do."""
        ...

    def launch(self, folder: Path) -> Left:
        """Be outer: let the run that `run.yaml` describes live, wait for its end, and tear down.

        The run judges itself before that.  Whatever kills any of the processes of the run, nothing
        of it may be left.
        """
        ...

    def build(self, names: Sequence[str], spec: RunSpec, folder: Path) -> Lab:
        """Build the nodes; there is no event loop yet.  Raises HarnessError."""
        ...


def backend(name: str) -> Backend:
    """Return the backend of a name (one of `BACKENDS`)."""
    return cast(Backend, importlib.import_module(_MODULES[name]))
