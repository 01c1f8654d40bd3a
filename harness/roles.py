"""Who is meant: role names resolved to nodes at the moment a fault begins.

`holder` and `waiter` follow what the workers say they believe; `leader` asks the target; the others
are names.  What a role turned out to be is recorded with the fault.
"""

from collections.abc import Mapping, Sequence

from harness.bounded import call
from harness.controller import Controller
from harness.node import Node
from harness.target import Cluster, Leader

LEADER_S = 30.0


class Roles:
    """The nodes of one run by role.  `servers` are the server names by part (`lock`, `store`)."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        servers: Mapping[str, Sequence[str]],
        controller: Controller,
        leader: tuple[Leader, Cluster] | None,
    ) -> None:
        self._nodes = nodes
        self._servers = servers
        self._controller = controller
        self._leader = leader

    def node(self, name: str) -> Node:
        """The node of that name."""
        return self._nodes[name]

    def fits(self, who: str, worker: str) -> bool:
        """Whether a worker that is about to pass a phase is one that `who` means.

        A worker that passes a phase of a lock's use is its holder by that.
        """
        return who in ("holder", "waiter", "all") or _numbered(who, "worker", "w") == worker

    async def nodes(self, who: str) -> list[Node]:
        """Return the nodes that play a role now; empty while nobody does."""
        return [self._nodes[name] for name in await self._names(who)]

    async def _names(self, who: str) -> list[str]:
        lock = list(self._servers["lock"])
        match who:
            case "holder" | "waiter":
                return self._controller.workers_that(who)[:1]
            case "reader":
                return [name for name in self._controller.seats if name.startswith("r")][:1]
            case "all":
                return lock
            case "store":
                return list(self._servers["store"])
            case "minority":
                return lock[: (len(lock) - 1) // 2]
            case "majority":
                return lock[: len(lock) // 2 + 1]
            case "leader" | "follower":
                return await self._by_leader(who, lock)
            case _:
                return self._named(who, lock)

    async def _by_leader(self, who: str, lock: list[str]) -> list[str]:
        if self._leader is None:
            return []
        target, cluster = self._leader
        leader = await call(target.leader, cluster, bound_s=LEADER_S)
        if leader is None:
            return []
        return [leader] if who == "leader" else [name for name in lock if name != leader][:1]

    def _named(self, who: str, lock: list[str]) -> list[str]:
        if who.startswith("server:"):
            number = int(who.split(":")[1])
            return lock[number - 1 : number]
        name = _numbered(who, "worker", "w")
        return [name] if name in self._nodes else []


def _numbered(who: str, word: str, letter: str) -> str:
    prefix = f"{word}:"
    return letter + who[len(prefix) :] if who.startswith(prefix) else who
