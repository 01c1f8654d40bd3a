"""Who takes part in a run, as far as its description tells.

From this alone a fault can say that it is impossible in a run, before anything is started.  What
only the place of the run can tell (rights, kernel, disks) is asked when it is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.target import Server, Target

Names = tuple[str, ...]


def by_part(lock: Sequence[Server], store: Sequence[Server] | None) -> dict[str, Sequence[str]]:
    """Return the names of the servers by the part that they play.

    Where one target plays both parts, `store` is None, and the roles of its servers tell; if none
    is a store by its role, all of them are both.
    """
    if store is not None:
        return {"lock": [server.name for server in lock], "store": [s.name for s in store]}
    stores = [server.name for server in lock if server.role == "store"]
    locks = [server.name for server in lock if server.role != "store"]
    return {"lock": locks, "store": stores or locks}


@dataclass(frozen=True)
class Cast:
    """The targets, and the nodes by name; `workers` want the lock, `readers` only read.

    `who` is whom a fault means; the lease is in seconds; `machine` is the kind of processor that
    everything runs on, as the kernel calls it, None when it is not known.  `backend` is where the
    run lives; the servers that are `attached` are not started by us: a compose file brings them up.
    """

    lock: Target
    store: Target
    lock_servers: Sequence[str]
    store_servers: Sequence[str]
    workers: Sequence[str]
    readers: Sequence[str] = ()
    who: str = "holder"
    ttl_s: float = 2.0
    machine: str | None = None
    backend: str = "local"
    attached: Sequence[str] = ()

    @property
    def clients(self) -> list[str]:
        """Everybody who is no server."""
        return [*self.workers, *self.readers]

    @property
    def servers(self) -> list[str]:
        """All servers, each once."""
        return list(dict.fromkeys([*self.lock_servers, *self.store_servers]))

    @property
    def may_be_hit(self) -> set[str]:
        """All nodes that `who` may turn out to be."""
        return {name for names in self.meant for name in names}

    @property
    def meant(self) -> list[Names]:
        """What `who` may turn out to be: the nodes of one window, for each that is possible."""
        lock = tuple(self.lock_servers)
        word, _, number = self.who.partition(":")
        match word:
            case "holder" | "waiter":
                return [(name,) for name in self.workers]
            case "reader":
                return [(name,) for name in self.readers[:1]]
            case "leader" | "follower":
                return [(name,) for name in lock]
            case "all":
                return [lock]
            case "majority":
                return [lock[: len(lock) // 2 + 1]]
            case "minority":
                return [lock[: (len(lock) - 1) // 2]]
            case "store":
                return [tuple(self.store_servers)]
            case "server":
                return [lock[int(number) - 1 : int(number)]]
            case "worker":
                return [(f"w{int(number)}",)]
            case _:
                return [(self.who,)]
