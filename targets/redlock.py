"""Redlock, as published: a lock on a majority of independent Valkey servers.

The client takes the time, asks every server in turn to `SET key owner NX PX ttl`, with a time-out
for each that is short against the TTL, and holds the lock if a majority agreed and time is left:
the TTL, less what the asking took, less an allowance for drifting clocks (1 % of the TTL and
2 ms).  Else it unlocks everywhere.  Renewal and release need a majority too.

There is no fencing token, so no store can tell a stale owner.  Nothing ties the servers together,
so the lock is as good as their wall clocks and their memories: a clock that jumps, or with
`persist=false` a restart, lets a second majority form.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from harness.target import (
    Cluster,
    ErrorRule,
    Grant,
    LockClient,
    Place,
    RefusedError,
    Server,
    ServerTime,
)
from targets import _valkey_server as valkey
from targets._binary import first_line

_BINARY = valkey.product("redlock")
_DRIFT_SHARE = 0.01
_DRIFT_S = 0.002


class NoMajorityError(Exception):
    """So many servers refused the connection that no majority can have agreed."""


class UndecidedError(Exception):
    """So many servers did not answer that a majority may have agreed, or not."""


class Redlock:
    """Independent Valkey servers, `redlock1`..`redlockN`, and the client of the algorithm."""

    name = "redlock"

    class Options(BaseModel):
        """Options of the target `redlock`."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(5, ge=1, le=9, description="independent servers")
        node_timeout_ms: int = Field(
            50, ge=1, description="how long each server is waited for, in milliseconds"
        )
        persist: bool = Field(
            default=True, description="fsync every write (false: a restart forgets every lock)"
        )
        binary: str | None = Field(None, description="path of a valkey-server of your own")

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "no majority",
            "so many servers refused the connection, or said no, that the others are no majority",
            lambda error: isinstance(error, NoMajorityError),
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    def servers(self) -> Sequence[Server]:
        """The servers, none of which knows of the others.  Raises UsageError without a binary."""
        keeping = ["--appendonly", "yes", "--appendfsync", "always"]
        argv = valkey.arguments(
            _BINARY.find(self.options.binary), *(keeping if self.options.persist else ())
        )
        names = [f"redlock{i + 1}" for i in range(self.options.nodes)]
        return [Server(name, argv, valkey.PORT) for name in names]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports redis)."""
        each_s = min(self.options.node_timeout_ms / 1000, timeout_s)
        return RedlockClient([valkey.connect(place, each_s) for place in cluster.places])

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every server answers."""
        return next(filter(None, map(valkey.answers, cluster.places)), None)

    def answers(self, place: Place) -> str | None:
        """Return None when the server answers PING with PONG."""
        return valkey.answers(place)

    def server_time(self, place: Place) -> ServerTime | None:
        """Return what the server answers to TIME."""
        return valkey.server_time(place)

    def version(self) -> str:
        """Return what `valkey-server --version` says.  Raises UsageError, HarnessError."""
        return first_line([_BINARY.find(self.options.binary), "--version"])


class RedlockClient:
    """The algorithm; the handle of a grant is the random name of its owner."""

    def __init__(self, servers: Sequence[Any]) -> None:
        self._servers = servers
        self._quorum = len(servers) // 2 + 1

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); `ttl_s` is rounded to milliseconds.

        What is granted is the validity: the TTL less the allowance, counted from the start.
        """
        name, owner, ttl_ms = valkey.lock_key(key), secrets.token_hex(16), round(ttl_s * 1000)
        validity_s = ttl_ms / 1000 * (1 - _DRIFT_SHARE) - _DRIFT_S
        began = time.monotonic()
        try:
            self._majority(lambda server: server.set(name, owner, nx=True, px=ttl_ms), "held")
        except Exception:
            self._unlock(name, owner)
            raise
        if time.monotonic() - began >= validity_s:
            self._unlock(name, owner)
            raise UndecidedError("a majority agreed when the lease was over already")
        return Grant(key, token=None, ttl_s=validity_s, handle=owner)

    def renew(self, grant: Grant) -> None:
        """Extend the lease on a majority by its full TTL or raise RefusedError("not-holder")."""
        ttl_ms = round((grant.ttl_s + _DRIFT_S) / (1 - _DRIFT_SHARE) * 1000)
        mine = (1, valkey.lock_key(grant.key), str(grant.handle))
        self._majority(lambda server: server.eval(valkey.RENEW, *mine, ttl_ms), "not-holder")

    def release(self, grant: Grant) -> None:
        """Delete the key on a majority, or raise RefusedError("not-holder").

        A minority that deleted it is an effect: others may form a majority with it.
        """
        mine = (1, valkey.lock_key(grant.key), str(grant.handle))
        try:
            self._majority(lambda server: server.eval(valkey.RELEASE, *mine), "not-holder")
        except NoMajorityError as partly:
            raise UndecidedError(str(partly)) from partly

    def check(self, grant: Grant) -> bool:
        """Return whether a majority still names this grant's owner."""
        owner = str(grant.handle).encode()
        try:
            self._majority(lambda s: s.get(valkey.lock_key(grant.key)) == owner, "not-holder")
        except RefusedError:
            return False
        return True

    def close(self) -> None:
        """Drop the connections."""
        for server in self._servers:
            server.close()

    def _unlock(self, name: str, owner: str) -> None:
        """Delete the key wherever it can be reached; elsewhere it ends by itself."""
        self._ask(lambda server: server.eval(valkey.RELEASE, 1, name, owner))

    def _majority(self, question: Callable[[Any], Any], refusal: str) -> None:
        """Return when a majority says yes.

        Raises RefusedError(refusal) when so many say no that there is none, NoMajorityError when
        that takes those who refused the connection, and UndecidedError when it may be either way.
        """
        yes, no, away = self._ask(question)
        if yes >= self._quorum:
            return
        if no > len(self._servers) - self._quorum:
            raise RefusedError(refusal, f"{yes} of {len(self._servers)} servers agreed")
        counts = f"{yes} yes, {no} no, {away} away of {len(self._servers)}"
        if no + away > len(self._servers) - self._quorum:
            raise NoMajorityError(counts)
        raise UndecidedError(counts)

    def _ask(self, question: Callable[[Any], Any]) -> tuple[int, int, int]:
        """Ask every server in turn; return how many said yes, no, and refused the connection."""
        import redis

        yes = no = away = 0
        for server in self._servers:
            try:
                agreed = bool(question(server))
            except redis.RedisError as error:
                away += valkey.never_connected(error)
            else:
                yes, no = yes + agreed, no + (not agreed)
        return yes, no, away
