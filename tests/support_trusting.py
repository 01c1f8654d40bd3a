"""A client library that takes its lock for held until the service itself says that it is not.

Several do: their flag is set at the grant and cleared by a refusal, and no clock is looked at.
"""

from typing import ClassVar

from harness.target import Cluster, Grant, LockClient, RefusedError
from targets.etcd import Etcd


class Trusting(Etcd):
    """etcd, used through such a library."""

    name = "trusting"

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client."""
        from targets._etcd_client import EtcdLock

        class TrustingLock(EtcdLock):
            """Holds what was granted until a renewal is refused."""

            refused: ClassVar[set[int | None]] = set()

            def renew(self, grant: Grant) -> None:
                """Extend the lease, or learn that there is none."""
                try:
                    super().renew(grant)
                except RefusedError:
                    self.refused.add(grant.token)
                    raise

            def believes(self, grant: Grant) -> bool:
                """Return the flag."""
                return grant.token not in self.refused

        return TrustingLock(self._access(cluster, timeout_s))
