"""Who is meant: role names resolved to nodes at the moment a fault begins.

`holder` and `waiter` follow what the workers say they believe; `leader` asks the target; the others
are names.  What a role turned out to be is recorded with the fault.
"""

from collections.abc import Mapping, Sequence

from harness.bounded import call
from harness.controller import Controller
from harness.node import Node
from harness.target import Cluster, Leader
from harness.text import plain

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
        self._no_leader = ""

    def node(self, name: str) -> Node:
        """The node of that name."""
        return self._nodes[name]

    def why_nobody(self, who: str) -> str:
        """Return why nobody played a role when it was asked for last, "" if nothing is known."""
        return self._no_leader if who in ("leader", "follower") else ""

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
        leader = await self._ask(*self._leader)
        if leader is None:
            return []
        return [leader] if who == "leader" else [name for name in lock if name != leader][:1]

    async def _ask(self, target: Leader, cluster: Cluster) -> str | None:
        """Ask the target's own code, which may fail in any way while members are out.

        A failure means that nobody knows the leader now, like an election; it does not end the run.
        """
        self._no_leader = ""
        try:
            leader = await call(target.leader, cluster, bound_s=LEADER_S)
        except Exception as error:  # noqa: BLE001 - told with the fault, if none comes in time
            self._no_leader = f"leader() raised {type(error).__name__}: {plain(str(error))}"
            return None
        if leader is not None and leader not in self._servers["lock"]:
            self._no_leader = f"leader said {leader!r}, which is no server of the lock"
            return None
        return leader

    def _named(self, who: str, lock: list[str]) -> list[str]:
        if who.startswith("server:"):
            number = int(who.split(":")[1])
            return lock[number - 1 : number]
        name = _numbered(who, "worker", "w")
        return [name] if name in self._nodes else []


def _numbered(who: str, word: str, letter: str) -> str:
    prefix = f"{word}:"
    return letter + who[len(prefix) :] if who.startswith(prefix) else who
