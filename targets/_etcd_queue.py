"""The two locks of etcd for which one queues: its lock service, and its clients' mutex.

Whoever wants the lock puts a key of his own under the lock's name, bound to his lease; the key with
the lowest create revision holds it, and that revision is the fencing token.  In the *lock service*
the server waits for its turn on behalf of the caller, in one call that may last for ever; in the
*concurrency recipe* the client itself watches the keys before its own, and then looks whether its
own is still there.  The server of 3.4.3 did not look (etcd-io/etcd#11456).

A lease that ends in the queue takes the key with it.  `Unlock` asks for no proof: it deletes.
"""

import time
from typing import Any

import grpc
from aetcd import rpc

from harness.target import Grant, Queued, RefusedError
from targets._etcd_access import Access
from targets._etcd_client import LeaseClient, created_at, left_s, lock_key
from targets._etcd_lock_rpc import LockRpc
from targets._no_effect import NotAskedError

_LOOK_S = 0.005
_EXPIRED = "session is expired"


def _prefix(key: str) -> bytes:
    return lock_key(key) + b"/"


def _own_key(key: str, lease: int) -> bytes:
    """The name of a place in the queue, as etcd's own clients and servers make it."""
    return _prefix(key) + f"{lease:x}".encode()


class _Queue(LeaseClient):
    """What both have in common: the keys in the queue; the handle of a grant is its lease."""

    def release(self, grant: Grant) -> None:
        """Take the own key out of the queue, and drop the lease."""
        end = time.monotonic() + self._timeout_s
        self._leave(_own_key(grant.key, grant.handle))
        self.revoke(grant.handle, end)

    def check(self, grant: Grant) -> bool:
        """Return whether the grant's key is still in the queue, at its head."""
        first = self._first(grant.key, self._timeout_s)
        return first is not None and first.create_revision == grant.token

    def _leave(self, own: bytes) -> None:
        self._kv.DeleteRange(rpc.DeleteRangeRequest(key=own), timeout=self._timeout_s)

    def _lease_for_place(self, ttl_s: float, end: float) -> Any:
        try:
            return self._new_lease(ttl_s, end)
        except grpc.RpcError as error:
            raise NotAskedError(f"{error.code().name}: {error.details()}") from error

    def _first(self, key: str, timeout_s: float, before: int = 0) -> Any:
        """Return the head of the queue, or with `before` of those created before; or None."""
        prefix = _prefix(key)
        asked = rpc.RangeRequest(
            key=prefix,
            range_end=prefix[:-1] + b"0",  # the byte after the slash
            sort_order=rpc.RangeRequest.ASCEND,
            sort_target=rpc.RangeRequest.CREATE,
            limit=1,
            keys_only=True,
            max_create_revision=max(0, before - 1),
        )
        found = self._kv.Range(asked, timeout=timeout_s).kvs
        return found[0] if found else None


class EtcdServiceLock(_Queue):
    """The lock service: the server says when it is the caller's turn."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._rpc = LockRpc(self._channel)
        self._asked: dict[int, Any] = {}  # the calls that wait, by lease

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Queue for as long as any call may last: the service knows no single try."""
        end = time.monotonic() + self._timeout_s
        place = self.queue(key, ttl_s)
        return self.wait(place, left_s(end))

    def queue(self, key: str, ttl_s: float) -> Queued:
        """Ask for the lock, and return as soon as the own key is in the queue."""
        end = time.monotonic() + self._timeout_s
        lease = self._lease_for_place(ttl_s, end)
        asked = self._asked[lease.ID] = self._rpc.lock(lock_key(key), lease.ID)
        try:
            token = self._placed(asked, _own_key(key, lease.ID), end)
            first = self._first(key, left_s(end))
        except (grpc.RpcError, TimeoutError):
            self._give_up(lease.ID)
            raise
        waiting = first is not None and first.create_revision != token and not asked.done()
        return Queued(Grant(key, token, float(lease.TTL), lease.ID), waiting)

    def _placed(self, asked: Any, own: bytes, end: float) -> int | None:
        """Return the token of the own place, None when the answer was there before it was seen."""
        while not asked.done():
            token = self._token(own, end)
            if token is not None:
                return token
            if time.monotonic() >= end:
                raise TimeoutError("no place in the queue")
            time.sleep(_LOOK_S)
        return None

    def wait(self, place: Queued, wait_s: float) -> Grant:
        """Wait for the answer; RefusedError("not-holder") when the lease ended in the queue."""
        grant = place.grant
        try:
            self._asked[grant.handle].result(timeout=wait_s)
        except grpc.FutureTimeoutError:
            self._give_up(grant.handle)
            raise TimeoutError(f"not granted within {wait_s:.3g} s") from None
        except grpc.RpcError as error:
            del self._asked[grant.handle]
            if _EXPIRED in (error.details() or ""):
                raise RefusedError("not-holder", error.details()) from error
            self.revoke(grant.handle, time.monotonic() + self._timeout_s)
            raise
        del self._asked[grant.handle]
        token = grant.token or self._token(
            _own_key(grant.key, grant.handle), time.monotonic() + self._timeout_s
        )
        if token is None:
            raise ConnectionError("etcd says that the lock is granted, and its key is gone")
        return Grant(grant.key, token, grant.ttl_s, grant.handle)

    def _leave(self, own: bytes) -> None:
        self._rpc.unlock(own, self._timeout_s)

    def _token(self, own: bytes, end: float) -> int | None:
        found = self._get(own, left_s(end))
        return None if found is None else int(found.create_revision)

    def _give_up(self, lease: int) -> None:
        """Leave the queue: the end of the lease takes the key out of it."""
        self._asked.pop(lease).cancel()
        self.revoke(lease, time.monotonic() + self._timeout_s)


class EtcdMutex(_Queue):
    """The concurrency recipe: the client waits for the keys before its own to go."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock if nobody is before us, else raise RefusedError("held")."""
        place = self.queue(key, ttl_s)
        if place.waiting:
            self.revoke(place.grant.handle, time.monotonic() + self._timeout_s)
            raise RefusedError("held")
        return place.grant

    def queue(self, key: str, ttl_s: float) -> Queued:
        """Put the own key under the lock's name, and look who is first, in one transaction."""
        end = time.monotonic() + self._timeout_s
        lease = self._lease_for_place(ttl_s, end)
        own = _own_key(key, lease.ID)
        put = rpc.PutRequest(key=own, value=b"", lease=lease.ID)
        answer = self._kv.Txn(
            rpc.TxnRequest(
                compare=[created_at(own, 0)],
                success=[
                    rpc.RequestOp(request_put=put),
                    rpc.RequestOp(request_range=rpc.RangeRequest(key=own)),
                ],
            ),
            timeout=left_s(end),
        )
        token = answer.responses[1].response_range.kvs[0].create_revision
        waiting = self._first(key, left_s(end), before=token) is not None
        return Queued(Grant(key, token, float(lease.TTL), lease.ID), waiting)

    def wait(self, place: Queued, wait_s: float) -> Grant:
        """Wait until all keys before the own one are gone, and look whether it is still there."""
        grant, end = place.grant, time.monotonic() + wait_s
        token = grant.token or 0
        while self._first(grant.key, self._timeout_s, before=token) is not None:
            if time.monotonic() >= end:
                self.revoke(grant.handle, time.monotonic() + self._timeout_s)
                raise TimeoutError(f"not granted within {wait_s:.3g} s")
            time.sleep(_LOOK_S * 4)
        if not self.check(grant):
            raise RefusedError("not-holder", f"mutex: {_EXPIRED}")
        return grant
