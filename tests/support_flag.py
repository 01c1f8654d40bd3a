"""A lock client with a flag that only its own calls change, as kazoo's `is_acquired` (C62).

The session behind it may end, and the server tell everybody else; the flag goes on saying yes, and
the client never asks.
"""

from harness.target import Cluster, Grant, LockClient
from targets.atlasmart.client import AtlasmartLock
from targets.atlasmart.target import Atlasmart


class FlagClient:
    """A client behind a flag for each lock; it cannot be asked to check its lease."""

    def __init__(self, lock: LockClient) -> None:
        self._lock = lock
        self._flags: dict[str, bool] = {}

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock, and set the flag."""
        grant = self._lock.acquire(key, ttl_s)
        self._flags[key] = True
        return grant

    def renew(self, grant: Grant) -> None:
        """Keep the session alive; whether that works, the flag does not say."""
        self._lock.renew(grant)

    def release(self, grant: Grant) -> None:
        """Clear the flag, and give the lock back."""
        self._flags[grant.key] = False
        self._lock.release(grant)

    def believes(self, grant: Grant) -> bool:
        """What the flag says."""
        return self._flags.get(grant.key, False)

    def close(self) -> None:
        """Drop the connection."""
        self._lock.close()


class FlagLock(Atlasmart):
    """Atlasmart with a client that never notices."""

    name = "flag"

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a client."""
        return FlagClient(AtlasmartLock(cluster["lock1"], timeout_s))
