"""The clients of Hazelcast, over its own library; imported only in processes that act as one.

The library's `FencedLock` keeps one session for all locks and sends its heartbeats by itself.  Here
the same requests are sent one by one, so a lease is renewed when the worker says so: a session for
every grant, and a heartbeat for every renewal.  The library would also send a request again after
some answers and after a lost connection; a request that is born late is never sent twice.
"""

import threading
import time
import uuid
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hazelcast import HazelcastClient
from hazelcast.config import Config
from hazelcast.errors import (
    ClientOfflineError,
    HazelcastError,
    IllegalMonitorStateError,
    IllegalStateError,
    OperationTimeoutError,
    SessionExpiredError,
)
from hazelcast.invocation import Invocation
from hazelcast.protocol.codec import (
    atomic_ref_compare_and_set_codec,
    atomic_ref_get_codec,
    atomic_ref_set_codec,
    cp_group_create_cp_group_codec,
    cp_session_close_session_codec,
    cp_session_create_session_codec,
    cp_session_heartbeat_session_codec,
    fenced_lock_get_lock_ownership_codec,
    fenced_lock_try_lock_codec,
    fenced_lock_unlock_codec,
)

from harness.target import Grant, RefusedError, Stored
from targets._no_effect import ChangedMeanwhileError, NotAskedError, NotConnectedError
from targets._stored import pack, unpack

GROUP = "default"
THREAD = 1  # a session has one owner here
_NO_FENCE = 0
_NO_SESSION = -1
_PAST = 1.0  # as a deadline: whatever could be repeated ends instead
_NOT_SENT = "No connection found to "


class CpClient:
    """One connection to one member, which passes requests on to the leader of the Raft group."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float) -> None:
        self._endpoints = list(endpoints)
        self._timeout_s = timeout_s
        self._client: Any = None
        self._group: Any = None

    def _connect(self) -> Any:
        """Return the client, connected now if it is not.  Raises NotConnectedError.

        It looks for another member by itself, and ends when it has found none for a while.
        """
        if self._client is None or not self._client.lifecycle_service.is_running():
            config = Config()
            config.cluster_members = self._endpoints
            config.smart_routing = False
            config.shuffle_member_list = False
            config.connection_timeout = self._timeout_s
            config.cluster_connect_timeout = self._timeout_s
            config.retry_initial_backoff = 0.1
            config.retry_max_backoff = 0.5
            config.statistics_enabled = False
            try:
                self._client = HazelcastClient(config)
            except (IllegalStateError, OSError) as error:
                raise NotConnectedError(str(error)) from error
        return self._client

    def _ask(self, codec: ModuleType, *words: Any, end: float | None = None) -> Any:
        """Return the decoded answer to a request about the Raft group; `end` in monotonic seconds.

        Raises NotConnectedError, HazelcastError, or TimeoutError.
        """
        end = time.monotonic() + self._timeout_s if end is None else end
        if self._group is None:
            self._group = self._send(cp_group_create_cp_group_codec, (GROUP,), end)
        return self._send(codec, (self._group, *words), end)

    def _send(self, codec: ModuleType, words: tuple[Any, ...], end: float) -> Any:
        client = self._connect()
        request = codec.encode_request(*words)
        request.retryable = False
        decode = getattr(codec, "decode_response", lambda _: None)
        invocation = Invocation(request, timeout=_PAST, response_handler=decode)
        answered = threading.Event()
        client._invocation_service.invoke(invocation)  # noqa: SLF001 - the library has no other door
        invocation.future.add_done_callback(lambda _: answered.set())
        if not answered.wait(max(0.0, end - time.monotonic())):
            raise TimeoutError(f"no answer within {self._timeout_s:g} s")
        try:
            return invocation.future.result()
        except (ClientOfflineError, OperationTimeoutError) as error:
            if _NOT_SENT in str(error):
                raise NotConnectedError(str(error)) from error
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self._client is not None:
            self._client.shutdown()


class HazelcastLock(CpClient):
    """A FencedLock for every key; the handle of a grant is its session."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); the lease is as long as the members say.

        The look at the lock keeps a waiter from making a session at every try.
        """
        end = time.monotonic() + self._timeout_s
        try:
            if self._owner(key, end)["session_id"] != _NO_SESSION:
                raise RefusedError("held")
            session = self._ask(cp_session_create_session_codec, "vanwinkle", end=end)
        except (HazelcastError, TimeoutError) as error:
            raise NotAskedError(repr(error)) from error
        number = session["session_id"]
        wanted = (lock_name(key), number, THREAD, uuid.uuid4(), 0)
        fence = self._ask(fenced_lock_try_lock_codec, *wanted, end=end)
        if fence == _NO_FENCE:
            self._close_session(number, end)
            raise RefusedError("held")
        return Grant(key, token=fence, ttl_s=session["ttl_millis"] / 1000, handle=number)

    def renew(self, grant: Grant) -> None:
        """Send a heartbeat of the session, or raise RefusedError("not-holder")."""
        try:
            self._ask(cp_session_heartbeat_session_codec, _session(grant))
        except SessionExpiredError as expired:
            raise RefusedError("not-holder", "the session has ended") from expired

    def release(self, grant: Grant) -> None:
        """Unlock, and end the session, or raise RefusedError("not-holder")."""
        end = time.monotonic() + self._timeout_s
        words = (lock_name(grant.key), _session(grant), THREAD, uuid.uuid4())
        try:
            self._ask(fenced_lock_unlock_codec, *words, end=end)
        except SessionExpiredError as expired:
            raise RefusedError("not-holder", "the session has ended") from expired
        except IllegalMonitorStateError as lost:
            raise RefusedError("not-holder", "the lock is not this session's") from lost
        self._close_session(_session(grant), end)

    def check(self, grant: Grant) -> bool:
        """Return whether the lock is held by this grant's session, with its fence."""
        owner = self._owner(grant.key, time.monotonic() + self._timeout_s)
        return bool(owner["session_id"] == grant.handle and owner["fence"] == grant.token)

    def _owner(self, key: str, end: float) -> Any:
        return self._ask(fenced_lock_get_lock_ownership_codec, lock_name(key), end=end)

    def _close_session(self, session: int, end: float) -> None:
        """Drop a session that holds nothing; it ends by itself if this does not arrive."""
        try:
            self._ask(cp_session_close_session_codec, session, end=end)
        except (HazelcastError, NotConnectedError, TimeoutError):
            return


def _session(grant: Grant) -> int:
    """Return the session of a grant; a grant that was made up has none."""
    return grant.handle if isinstance(grant.handle, int) else _NO_SESSION


class HazelcastStore(CpClient):
    """An AtomicReference for every resource."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, *, fenced: bool) -> None:
        super().__init__(endpoints, timeout_s)
        self._fenced = fenced

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        return self._stored(self._ask(atomic_ref_get_codec, data_name(key)))

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write and return what was overwritten; fenced: or raise RefusedError("fenced")."""
        name, data = data_name(key), self._data(pack(value, token).decode())
        if not self._fenced:
            return self._stored(self._ask(atomic_ref_set_codec, name, data, True))
        if token is None:
            raise RefusedError("fenced", "the write carries no token")
        end = time.monotonic() + self._timeout_s
        before = self._ask(atomic_ref_get_codec, name, end=end)
        old = self._stored(before)
        if old is not None and old.token is not None and token < old.token:
            raise RefusedError("fenced", f"token {token} is below {old.token}, the highest seen")
        if not self._ask(atomic_ref_compare_and_set_codec, name, before, data, end=end):
            raise ChangedMeanwhileError(name)
        return old

    def _data(self, text: str) -> Any:
        return self._connect()._serialization_service.to_data(text)  # noqa: SLF001 - as in _send

    def _stored(self, data: Any) -> Stored | None:
        if data is None:
            return None
        text = self._connect()._serialization_service.to_object(data)  # noqa: SLF001 - as in _send
        return unpack(str(text).encode())


def lock_name(key: str) -> str:
    """Return the name of the lock of the resource `key`."""
    return f"vanwinkle-lock-{key}"


def data_name(key: str) -> str:
    """Return the name of the reference that holds the value of the resource `key`."""
    return f"vanwinkle-data-{key}"
