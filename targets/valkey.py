"""Valkey (and Redis), one server, as lock service and as store.

The lock is the well-known one: `SET key owner NX PX ttl`, with scripts that renew and release only
for the owner.  It has no fencing token of its own; with `token=counter` the same script counts the
grants of the lock, and that count is the token.  Keys expire by the server's *wall clock*.

As store, a plain `SET ... GET` takes every write.  With `fenced` a script keeps the token beside
the value in one hash and refuses a lower one; the hash is one write to the append-only file, so
value and token survive or perish together.  Tokens are compared as Lua numbers: exact up to 2**53.

Everything here is one server without replicas: what Valkey does on failover is another target.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.target import (
    Cluster,
    Grant,
    LockClient,
    Place,
    RefusedError,
    Server,
    ServerTime,
    StoreClient,
    Stored,
)
from targets._binary import IMAGE, first_line, one_of
from targets._stored import pack, unpack
from targets._valkey_server import (
    ERRORS,
    PORT,
    RELEASE,
    RENEW,
    answers,
    arguments,
    connect,
    lock_key,
    product,
    server_time,
)

_BINARY = product("valkey")

_ACQUIRE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return redis.call('INCR', KEYS[2])
end
return false"""
_WRITE_FENCED = """
local token, value = unpack(redis.call('HMGET', KEYS[1], 'token', 'value'))
if token and tonumber(ARGV[1]) < tonumber(token) then return {0, token} end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return {1, value}"""


class Valkey:
    """One Valkey server, `valkey1`: SET NX PX, with a counter for fencing tokens."""

    name = "valkey"

    class Options(BaseModel):
        """Options of the target `valkey`."""

        model_config = ConfigDict(extra="forbid")

        fenced: bool = Field(default=False, description="as store: refuse a lower token")
        token: Literal["counter", "none"] = Field(
            "counter", description="as lock: count grants for a fencing token, or give none"
        )
        appendfsync: Literal["always", "everysec", "no"] = Field(
            "always", description="when the append-only file reaches the disk"
        )
        binary: str | None = Field(None, description="path of a valkey-server of your own")
        image: str | None = Field(None, description=IMAGE)

        @model_validator(mode="after")
        def _one_source(self) -> Self:
            one_of(binary=self.binary, image=self.image)
            return self

    errors = ERRORS

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = "checked" if self.options.fenced else "none"

    def servers(self) -> Sequence[Server]:
        """The one server.  Raises UsageError where no binary is found."""
        keeping = ["--appendonly", "yes", "--appendfsync", self.options.appendfsync]
        image = self.options.image
        argv = arguments(_BINARY.find(self.options.binary, image=image), *keeping)
        return [Server("valkey1", argv, PORT, image=image)]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports redis)."""
        counted = self.options.token == "counter"  # noqa: S105 - a fencing token is no secret
        return ValkeyLock(connect(cluster.places[0], timeout_s), counted=counted)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (imports redis)."""
        return ValkeyStore(connect(cluster.places[0], timeout_s), fenced=self.options.fenced)

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when the server answers PING with PONG."""
        return answers(cluster.places[0])

    def answers(self, place: Place) -> str | None:
        """Return None when the server answers PING with PONG."""
        return answers(place)

    def server_time(self, place: Place) -> ServerTime | None:
        """Return what the server answers to TIME."""
        return server_time(place)

    def version(self) -> str:
        """Return what `valkey-server --version` says.  Raises UsageError, HarnessError."""
        if self.options.image is not None:
            return f"valkey of {self.options.image}"
        return first_line([_BINARY.find(self.options.binary), "--version"])


class ValkeyLock:
    """A key per lock that names its owner; the handle of a grant is that name."""

    def __init__(self, client: Any, *, counted: bool) -> None:
        self._client = client
        self._counted = counted

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); `ttl_s` is rounded to milliseconds."""
        owner, ttl_ms = secrets.token_hex(16), round(ttl_s * 1000)
        token = None
        if self._counted:
            token = self._client.eval(
                _ACQUIRE, 2, lock_key(key), f"vanwinkle:token:{key}", owner, ttl_ms
            )
            taken = token is not None
        else:
            taken = self._client.set(lock_key(key), owner, nx=True, px=ttl_ms)
        if not taken:
            raise RefusedError("held")
        return Grant(key, token=token, ttl_s=ttl_ms / 1000, handle=owner)

    def renew(self, grant: Grant) -> None:
        """Extend the lease by its full TTL or raise RefusedError("not-holder")."""
        ttl_ms = round(grant.ttl_s * 1000)
        if not self._client.eval(RENEW, 1, lock_key(grant.key), _owner(grant), ttl_ms):
            raise RefusedError("not-holder")

    def release(self, grant: Grant) -> None:
        """Delete the key if it is still ours, else raise RefusedError("not-holder")."""
        if not self._client.eval(RELEASE, 1, lock_key(grant.key), _owner(grant)):
            raise RefusedError("not-holder")

    def check(self, grant: Grant) -> bool:
        """Return whether the key still names this grant's owner."""
        return bool(self._client.get(lock_key(grant.key)) == _owner(grant).encode())

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()


class ValkeyStore:
    """A string per resource, or with `fenced` a hash of the value and its token."""

    def __init__(self, client: Any, *, fenced: bool) -> None:
        self._client = client
        self._fenced = fenced

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        name = _data_key(key)
        data = self._client.hget(name, "value") if self._fenced else self._client.get(name)
        return None if data is None else unpack(data)

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write and return what was overwritten; fenced: or raise RefusedError("fenced")."""
        name, data = _data_key(key), pack(value, token)
        if not self._fenced:
            old = self._client.set(name, data, get=True)
            return None if old is None else unpack(old)
        if token is None:
            raise RefusedError("fenced", "the write carries no token")
        accepted, seen = self._client.eval(_WRITE_FENCED, 1, name, token, data)
        if not accepted:
            raise RefusedError("fenced", f"token {token} is below {int(seen)}, the highest seen")
        return None if seen is None else unpack(seen)

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()


def _owner(grant: Grant) -> str:
    return str(grant.handle)


def _data_key(key: str) -> str:
    return f"vanwinkle:data:{key}"
