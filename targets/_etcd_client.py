"""The clients of etcd, over gRPC; imported only in processes that act as one.

A client has one connection of its own.  gRPC's `pick_first` tries the members in order and keeps
the first that accepts: every client talks to `etcd1` while that answers, stays with it when it is
only frozen or cut off (its calls then time out), and goes to the next member when the connection
breaks.  So a fault between members meets clients that all stand on the same side.

gRPC's own retries are off, and its reconnect back-off is short, so that the end of a fault and not
the back-off decides when a client is served again.
"""

import time
from math import ceil
from typing import Any

import grpc
from aetcd import rpc

from harness.target import Grant, RefusedError, Stored
from targets._etcd_access import Access
from targets._no_effect import NotAskedError
from targets._stored import pack, unpack

CHANNEL = (
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.lb_policy_name", "pick_first"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # no connection is shared with the renewal thread
)


def lock_key(key: str) -> bytes:
    """Return the key that is the lock of the resource `key`."""
    return f"vanwinkle/lock/{key}".encode()


def data_key(key: str) -> bytes:
    """Return the key that holds the value of the resource `key`."""
    return f"vanwinkle/data/{key}".encode()


def created_at(key: bytes, revision: int) -> Any:
    """The comparison "this key was created at this revision"; 0 means "does not exist"."""
    return rpc.Compare(
        key=key,
        target=rpc.Compare.CREATE,
        result=rpc.Compare.EQUAL,
        create_revision=revision,
    )


class EtcdClient:
    """One channel, and the deadline of the operation that runs on it."""

    def __init__(self, access: Access) -> None:
        self._timeout_s = access.timeout_s
        self._channel = access.channel(CHANNEL)
        if access.user is not None:
            from targets._etcd_login import as_user

            self._channel = as_user(self._channel, access.user, access.timeout_s)
        self._kv = rpc.KVStub(self._channel)

    def _get(self, key: bytes, timeout_s: float) -> Any:
        """Return the key-value record of a linearizable read, None when there is none."""
        found = self._kv.Range(rpc.RangeRequest(key=key), timeout=timeout_s).kvs
        return found[0] if found else None

    def close(self) -> None:
        """Drop the connection."""
        self._channel.close()


class LeaseClient(EtcdClient):
    """What every lock of etcd needs: a lease, which is the handle of its grant."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._lease = rpc.LeaseStub(self._channel)

    def _new_lease(self, ttl_s: float, end: float) -> Any:
        """Return a new lease of `ttl_s`, rounded up to whole seconds."""
        return self._lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=ceil(ttl_s)), timeout=left_s(end))

    def renew(self, grant: Grant) -> None:
        """Extend the lease by its full TTL or raise RefusedError("not-holder")."""
        asked = rpc.LeaseKeepAliveRequest(ID=grant.handle or 0)
        answers = self._lease.LeaseKeepAlive(iter([asked]), timeout=self._timeout_s)
        try:
            answer = next(answers, None)
        finally:
            answers.cancel()
        if answer is None:
            raise ConnectionError("etcd ended the stream without an answer")
        if answer.TTL <= 0:
            raise RefusedError("not-holder", "the lease has ended")

    def revoke(self, lease: int | None, end: float) -> None:
        """Drop a lease that nothing depends on; it ends by itself if this does not arrive."""
        if lease is None:
            return
        try:
            self._lease.LeaseRevoke(rpc.LeaseRevokeRequest(ID=lease), timeout=left_s(end))
        except grpc.RpcError:
            return


class EtcdLock(LeaseClient):
    """A lease and a key for every grant; the handle of a grant is its lease."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); `ttl_s` is rounded up to whole seconds.

        The lease is new for every try, so its life cannot have begun before the try did.  The first
        read keeps a waiter from making a lease at every try.  The token is read back inside the
        transaction: the answer names the create revision itself, and nothing is inferred.
        """
        end = time.monotonic() + self._timeout_s
        name = lock_key(key)
        try:
            if self._get(name, self._timeout_s) is not None:
                raise RefusedError("held")
            lease = self._new_lease(ttl_s, end)
        except grpc.RpcError as error:
            raise NotAskedError(f"{error.code().name}: {error.details()}") from error
        put = rpc.PutRequest(key=name, value=b"", lease=lease.ID)
        read_back = rpc.RangeRequest(key=name)
        answer = self._kv.Txn(
            rpc.TxnRequest(
                compare=[created_at(name, 0)],
                success=[
                    rpc.RequestOp(request_put=put),
                    rpc.RequestOp(request_range=read_back),
                ],
            ),
            timeout=left_s(end),
        )
        if not answer.succeeded:
            self.revoke(lease.ID, end)
            raise RefusedError("held")
        token = answer.responses[1].response_range.kvs[0].create_revision
        return Grant(key, token=token, ttl_s=float(lease.TTL), handle=lease.ID)

    def release(self, grant: Grant) -> None:
        """Delete the lock's key if it is still ours, else raise RefusedError("not-holder")."""
        end = time.monotonic() + self._timeout_s
        name = lock_key(grant.key)
        delete = rpc.DeleteRangeRequest(key=name)
        answer = self._kv.Txn(
            rpc.TxnRequest(
                compare=[created_at(name, _granted(grant.token))],
                success=[rpc.RequestOp(request_delete_range=delete)],
            ),
            timeout=self._timeout_s,
        )
        if not answer.succeeded:
            raise RefusedError("not-holder")
        self.revoke(grant.handle, end)

    def check(self, grant: Grant) -> bool:
        """Return whether the lock's key is still the one that this grant created."""
        found = self._get(lock_key(grant.key), self._timeout_s)
        return found is not None and found.create_revision == grant.token


class EtcdStore(EtcdClient):
    """A key for every resource; with `guarded` a write must hold the lock of the same name."""

    def __init__(self, access: Access, *, guarded: bool, serializable: bool) -> None:
        super().__init__(access)
        self._guarded = guarded
        self._serializable = serializable

    def read(self, key: str) -> Stored | None:
        """Return the value that etcd shows, None when it shows nothing."""
        asked = rpc.RangeRequest(key=data_key(key), serializable=self._serializable)
        found = next(iter(self._kv.Range(asked, timeout=self._timeout_s).kvs), None)
        return None if found is None else unpack(found.value)

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write and return what was overwritten; guarded: or raise RefusedError("not-holder")."""
        put = rpc.PutRequest(key=data_key(key), value=pack(value, token), prev_kv=True)
        if not self._guarded:
            return _overwritten(self._kv.Put(put, timeout=self._timeout_s))
        answer = self._kv.Txn(
            rpc.TxnRequest(
                compare=[created_at(lock_key(key), _granted(token))],
                success=[rpc.RequestOp(request_put=put)],
            ),
            timeout=self._timeout_s,
        )
        if not answer.succeeded:
            raise RefusedError("not-holder", f"token {token} does not hold the lock")
        return _overwritten(answer.responses[0].response_put)


def _granted(token: int | None) -> int:
    """Return a token that etcd can have granted, or raise RefusedError("not-holder").

    Revision 0 must never reach a comparison: etcd reads it as "the key does not exist", and a
    forged token 0 would hold every free lock.
    """
    if token is None or token <= 0:
        raise RefusedError("not-holder", f"{token} is no token of etcd")
    return token


def _overwritten(put: Any) -> Stored | None:
    return unpack(put.prev_kv.value) if put.HasField("prev_kv") else None


def left_s(end: float) -> float:
    """Return the seconds until `end`; an operation of several requests has one deadline."""
    return max(0.0, end - time.monotonic())
