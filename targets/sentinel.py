"""Valkey with a replica and three Sentinels, as lock service: a failover while leases run.

The lock is the one of the target `valkey`, on whichever server the Sentinels call primary when a
client connects.  Replication is *asynchronous*: the primary acknowledges a lock, a renewal or a
count before the replica has it.  Sentinels promote the replica after the primary was silent for
`down_after_ms`; what the replica had not heard is then forgotten, tokens included, and a primary
that was only cut off goes on granting to the clients that reach it until it hears of its successor.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.target import (
    Cluster,
    ErrorRule,
    LockClient,
    Place,
    Server,
    ServerTime,
)
from targets import _valkey_server as valkey
from targets._binary import first_line
from targets.valkey import ValkeyLock

SENTINEL_PORT = 26379
SENTINELS = 3
QUORUM = 2
_NAME = "vanwinkle"
_START = str(Path(__file__).with_name("_sentinel_server.py"))
_BINARY = valkey.product("sentinel")


def _was_primary(error: BaseException) -> bool:
    # The client turns the refusal of a server that has become a replica into a lost connection.
    return valkey.rejected(error.__context__ or error)


def _nobody_to_ask(error: BaseException) -> bool:
    kind = type(error)
    return kind.__module__ == "redis.sentinel" and kind.__name__ == "MasterNotFoundError"


class Sentinel:
    """A primary `data1`, its replica `data2`, and the Sentinels that may swap them."""

    name = "sentinel"

    class Options(BaseModel):
        """Options of the target `sentinel`."""

        model_config = ConfigDict(extra="forbid")

        token: Literal["counter", "none"] = Field(
            "counter", description="count grants for a fencing token, or give none"
        )
        down_after_ms: int = Field(
            500, ge=100, description="silence after which the primary counts as down, in ms"
        )
        binary: str | None = Field(None, description="path of a valkey-server of your own")

    errors: Sequence[ErrorRule] = (
        *valkey.ERRORS,
        ErrorRule(
            "the previous master is now a slave",
            "the server answered READONLY: it rejects the first command that would write",
            _was_primary,
        ),
        ErrorRule(
            "no master found",
            "no Sentinel named a primary, so there was nobody to be asked",
            _nobody_to_ask,
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def servers(self) -> Sequence[Server]:
        """Two data servers and the Sentinels.  Raises UsageError where no binary is found."""
        binary = _BINARY.find(self.options.binary)
        announced = ["--replica-announce-ip", "{address}", "--repl-diskless-sync-delay", "0"]
        data = valkey.arguments(binary, "--appendonly", "yes", *announced)
        following = ["--replicaof", "{peer[data1]}", str(valkey.PORT)]
        lines = [
            f"port {SENTINEL_PORT}",
            "bind {address}",
            "dir {data}",
            "protected-mode no",
            "sentinel announce-ip {address}",
            f"sentinel monitor {_NAME} {{peer[data1]}} {valkey.PORT} {QUORUM}",
            f"sentinel down-after-milliseconds {_NAME} {self.options.down_after_ms}",
            f"sentinel failover-timeout {_NAME} {2 * self.options.down_after_ms}",
        ]
        argv = [sys.executable, "-I", "-S", _START, binary, "{data}/sentinel.conf", *lines]
        return [
            Server("data1", data, valkey.PORT),
            Server("data2", [*data, *following], valkey.PORT),
            *(Server(f"sentinel{i + 1}", argv, SENTINEL_PORT) for i in range(SENTINELS)),
        ]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client that asks the Sentinels at each new connection (imports redis)."""
        from redis.sentinel import Sentinel as Sentinels

        settings = valkey.settings(timeout_s)
        asked = [(place.address, place.port) for place in _sentinels(cluster)]
        ask_s = valkey.settings(timeout_s / len(asked))
        client = Sentinels(asked, sentinel_kwargs=ask_s).master_for(_NAME, **settings)
        return ValkeyLock(client, counted=self.options.token == "counter")  # noqa: S105 - a fencing token is no secret

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when the replica follows and every Sentinel knows all the others."""
        if mute := next(filter(None, map(valkey.answers, cluster.places)), None):
            return mute
        if _info(cluster["data1"]).get("slave0", {}).get("state") != "online":
            return "data2 does not follow data1 yet"
        for place in _sentinels(cluster):
            told = _told(place)
            if told.get("num-slaves") != 1 or told.get("num-other-sentinels") != SENTINELS - 1:
                return f"{place.name} does not know all the others yet"
        return None

    def answers(self, place: Place) -> str | None:
        """Return None when the server answers PING with PONG."""
        return valkey.answers(place)

    def server_time(self, place: Place) -> ServerTime | None:
        """Return what the server answers to TIME; Sentinels do not tell."""
        return valkey.server_time(place)

    def leader(self, cluster: Cluster) -> str | None:
        """Return the server that most Sentinels call primary."""
        named = [str(_told(place).get("ip")) for place in _sentinels(cluster)]
        for place in cluster.places:
            if named.count(place.address) >= QUORUM:
                return place.name
        return None

    def version(self) -> str:
        """Return what `valkey-server --version` says.  Raises UsageError, HarnessError."""
        return first_line([_BINARY.find(self.options.binary), "--version"])


def _sentinels(cluster: Cluster) -> list[Place]:
    # By name: a worker that is sent through proxies knows other ports.
    return [place for place in cluster.places if place.name.startswith("sentinel")]


def _told(place: Place) -> dict[str, Any]:
    """Return what a Sentinel says of the primary; {} when it does not answer."""
    return _asked(place, lambda client: client.sentinel_master(_NAME))


def _info(place: Place) -> dict[str, Any]:
    return _asked(place, lambda client: client.info("replication"))


def _asked(place: Place, question: Any) -> dict[str, Any]:
    import redis

    client = valkey.connect(place, valkey.PROBE_TIMEOUT_S)
    try:
        return dict(question(client))
    except (redis.RedisError, OSError):
        return {}
    finally:
        client.close()
