"""The clients of NATS JetStream; imported only in processes that act as one.

A client tries the servers in order and stays with the first that answers: every client talks to
`nats1` while that answers.  Any other server forwards requests to the leader of the bucket.

nats-py repeats nothing by itself; its reconnecting is off, since it would hold requests back and
send them later.  A client has an event loop of its own that runs only during a call.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import Header, StorageType, StreamConfig
from nats.js.errors import APIError, NotFoundError

from harness.target import Grant, RefusedError, Stored
from targets._no_effect import ChangedMeanwhileError, NotAskedError
from targets._stored import pack, unpack

BUCKET = "vanwinkle"
STREAM = f"KV_{BUCKET}"
_WRONG_SEQUENCE = (10071, 10164)
T = TypeVar("T")


async def _quiet(error: Exception) -> None:
    """Say nothing: the call that suffers from the error says it."""


_ONE_TRY: dict[str, Any] = {
    "allow_reconnect": False,
    "max_reconnect_attempts": 1,
    "reconnect_time_wait": 0,
    "error_cb": _quiet,
}


class _Client:
    """One connection, made when it is needed, dropped after any error."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float) -> None:
        self._servers = [f"nats://{endpoint}" for endpoint in endpoints]
        self._timeout_s = timeout_s
        self._runner = asyncio.Runner()
        self._connection: Any = None

    def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run one call to its end, within the time-out; `work` is given the JetStream context."""

        async def bounded() -> T:
            async with asyncio.timeout(self._timeout_s):
                return await work(await self._jetstream())

        try:
            return self._runner.run(bounded())
        except (RefusedError, ChangedMeanwhileError):
            raise
        except TimeoutError as late:
            self._drop()
            raise TimeoutError(f"no answer within {self._timeout_s:g} s") from late
        except BaseException:
            self._drop()
            raise

    async def _jetstream(self) -> Any:
        if self._connection is None or not self._connection.is_connected:
            self._connection = await self._connected()
        return self._connection.jetstream(timeout=self._timeout_s)

    async def _connected(self) -> Any:
        """Return a connection to the first server that answers.  Raises NotAskedError."""
        each_s = self._timeout_s / (len(self._servers) + 1)
        trouble = []
        for server in self._servers:
            connection = Client()
            try:
                async with asyncio.timeout(each_s):
                    await connection.connect(server, **_ONE_TRY)
            except (Error, OSError) as error:
                await _closed(connection)
                trouble.append(f"{server}: {str(error) or type(error).__name__}")
            else:
                return connection
        raise NotAskedError(f"no connection: {'; '.join(trouble)}")

    async def _last(self, stream: Any, subject: str) -> tuple[int, bytes | None]:
        """Return the last sequence of a subject and its value; 0 and None where there is none.

        Raises NotAskedError, since a read changes nothing.
        """
        try:
            message = await stream.get_msg(STREAM, subject=subject)
        except NotFoundError:
            return 0, None
        except (Error, OSError) as error:
            raise NotAskedError(f"{type(error).__name__}: {error}") from error
        deleted = "KV-Operation" in (message.headers or {})
        return message.seq or 0, None if deleted else message.data or b""

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._runner.run(_closed(connection))

    def close(self) -> None:
        """Drop the connection."""
        self._drop()
        self._runner.close()


async def _closed(connection: Any) -> None:
    try:
        async with asyncio.timeout(0.2):
            await connection.close()
    except (Error, OSError):
        return


async def _put(stream: Any, subject: str, data: bytes, after: int | None, **headers: str) -> int:
    """Append to a subject and return the sequence; `after` is what its last one must be.

    Raises ChangedMeanwhileError when it is another.
    """
    if after is not None:
        headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(after)
    try:
        stored = await stream.publish(subject, data, headers=headers or None)
    except APIError as error:
        if error.err_code in _WRONG_SEQUENCE:
            raise ChangedMeanwhileError(str(error)) from error
        raise
    return int(stored.seq)


class NatsLock(_Client):
    """A key for every lock that names its owner and ends by itself; the handle is that name."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); `ttl_s` is rounded up to whole seconds.

        The key is read, and then written if its sequence is still that of the free key.  The
        sequence of that write is the token.
        """
        owner, lease_s = secrets.token_hex(16).encode(), float(ceil(ttl_s))

        async def take(stream: Any) -> int:
            sequence, holder = await self._last(stream, _lock(key))
            if holder is not None:
                raise RefusedError("held")
            try:
                return await _put(stream, _lock(key), owner, sequence, **_ending(lease_s))
            except ChangedMeanwhileError as lost:
                raise RefusedError("held", "another was quicker") from lost

        return Grant(key, token=self.do(take), ttl_s=lease_s, handle=owner)

    def renew(self, grant: Grant) -> None:
        """Write the key again with a new life, or raise RefusedError("not-holder")."""
        ending = _ending(grant.ttl_s)
        self.do(lambda stream: self._replace(stream, grant, grant.handle, **ending))

    def release(self, grant: Grant) -> None:
        """Delete the key if it is still ours, else raise RefusedError("not-holder")."""
        deleted = {"KV-Operation": "DEL"}
        self.do(lambda stream: self._replace(stream, grant, b"", **deleted))

    def check(self, grant: Grant) -> bool:
        """Return whether the leader of the bucket says that the key still names our owner."""

        async def look(stream: Any) -> bool:
            holder = (await self._last(stream, _lock(grant.key)))[1]
            return holder is not None and bool(holder == grant.handle)

        return self.do(look)

    async def _replace(self, stream: Any, grant: Grant, data: bytes, **headers: str) -> None:
        """Write the key if it names the owner of this grant, and nobody writes in between."""
        sequence, holder = await self._last(stream, _lock(grant.key))
        if holder is None or holder != grant.handle:
            raise RefusedError("not-holder")
        await _put(stream, _lock(grant.key), data, sequence, **headers)


class NatsStore(_Client):
    """A key for every resource; with `fenced` it is compared and set."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, *, fenced: bool) -> None:
        super().__init__(endpoints, timeout_s)
        self._fenced = fenced

    def read(self, key: str) -> Stored | None:
        """Return what the leader of the bucket has, None when nothing was ever written."""

        async def look(stream: Any) -> Stored | None:
            data = (await self._last(stream, _data(key)))[1]
            return None if data is None else unpack(data)

        return self.do(look)

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write; fenced: return what was overwritten or raise RefusedError("fenced")."""
        data = pack(value, token)
        if not self._fenced:
            self.do(lambda stream: _put(stream, _data(key), data, None))
            return None
        if token is None:
            raise RefusedError("fenced", "the write carries no token")

        async def compare_and_set(stream: Any) -> Stored | None:
            sequence, before = await self._last(stream, _data(key))
            old = None if before is None else unpack(before)
            if old is not None and old.token is not None and token < old.token:
                text = f"token {token} is below {old.token}, the highest seen"
                raise RefusedError("fenced", text)
            await _put(stream, _data(key), data, sequence)
            return old

        return self.do(compare_and_set)


def make_bucket(endpoints: Sequence[str], timeout_s: float, replicas: int) -> str | None:
    """Make the bucket of locks and data if it is not there; return None, or why not."""
    client = _Client(endpoints, timeout_s)
    config = StreamConfig(
        name=STREAM,
        subjects=[f"$KV.{BUCKET}.>"],
        num_replicas=replicas,
        max_msgs_per_subject=1,
        storage=StorageType.FILE,
        allow_msg_ttl=True,
        allow_direct=False,  # any member may answer a direct read, however far it is behind
        allow_rollup_hdrs=True,
        deny_delete=True,
    )

    async def make(stream: Any) -> None:
        await stream.add_stream(config)

    try:
        client.do(make)
    except (NotAskedError, Error, OSError) as error:
        return f"the bucket: {type(error).__name__}: {error}"
    finally:
        client.close()
    return None


def _ending(ttl_s: float) -> dict[str, str]:
    return {str(Header.MSG_TTL.value): f"{ttl_s:.0f}"}


def _lock(key: str) -> str:
    return f"$KV.{BUCKET}.lock.{key}"


def _data(key: str) -> str:
    return f"$KV.{BUCKET}.data.{key}"
