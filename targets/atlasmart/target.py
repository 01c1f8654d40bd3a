"""The target `atlasmart`: its servers, its options, its error table and its log."""

import sys
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.target import (
    Accept,
    Cluster,
    ErrorRule,
    LockClient,
    Server,
    StoreClient,
    data_file,
)
from targets.atlasmart.client import AtlasmartLock, AtlasmartStore, BadRequestError
from targets.atlasmart.journal import JOURNAL, records

LOCK_PORT = 7201
STORE_PORT = 7202


class Atlasmart:
    """Our reference pair: a lock server `lock1` and a store `store1` that may check tokens."""

    name = "atlasmart"
    by_token = ("renew", "release")

    class Options(BaseModel):
        """Options of the target `atlasmart`."""

        model_config = ConfigDict(extra="forbid")

        fence: Literal["none", "checked"] = Field(
            "none", description="as store: take every write, or refuse a lower token"
        )
        persist: Literal["value-and-fence", "value-only"] = Field(
            "value-and-fence",
            description="as store: what outlives a restart; value-only forgets the highest token",
        )

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "connection refused",
            "only connect() is refused, so no request was sent",
            lambda error: isinstance(error, ConnectionRefusedError),
        ),
        ErrorRule(
            "bad request",
            "the server answered that it does not understand the line, and did nothing",
            lambda error: isinstance(error, BadRequestError),
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence: str = self.options.fence

    def servers(self) -> Sequence[Server]:
        """Both servers; each is this Python with one module."""

        def argv(module: str, port: int) -> list[str]:
            place = ["{address}", str(port), "{data}"]
            return [sys.executable, "-P", "-m", f"targets.atlasmart.{module}", *place]

        stored = [*argv("stored", STORE_PORT), self.fence, self.options.persist]
        return [
            Server("lock1", argv("lockd", LOCK_PORT), LOCK_PORT, role="lock"),
            Server("store1", stored, STORE_PORT, role="store"),
        ]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client."""
        return AtlasmartLock(cluster["lock1"], timeout_s)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client."""
        return AtlasmartStore(cluster["store1"], timeout_s)

    def store_log(self, cluster: Cluster) -> Sequence[Accept]:
        """Return what the store accepted and refused.  Raises TargetError for a damaged file."""
        return list(records(data_file(cluster["store1"], JOURNAL), Accept))

    def version(self) -> str:
        """Atlasmart is part of this distribution, and has its version."""
        from harness import __version__

        return f"atlasmart {__version__}"
