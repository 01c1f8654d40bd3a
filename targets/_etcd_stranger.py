"""A client of etcd that tries what its user may not do.

Ways to reach a key for which one has no permission: by its name, as part of a range, as everything
from a key on, inside a transaction, and inside a transaction in it.  A check forgets one of them
easily: etcd before 3.6.9 the last (CVE-2026-33343), and a watch from a key on until 3.7
(GHSA-xg4h-6gfc-h4m8).  So a stranger tries them all.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
from aetcd import rpc

from harness.target import RefusedError
from targets._etcd_access import Access
from targets._etcd_auth import STRANGER, STRANGER_RANGE, WORKER_RANGE
from targets._etcd_client import CHANNEL, data_key
from targets._etcd_login import as_user
from targets._stored import unpack

_DENIED = ("PERMISSION_DENIED", "UNAUTHENTICATED")
_FROM_KEY_ON = b"\0"


class EtcdStranger:
    """Somebody with a user of his own, and no permission for what the workers have."""

    def __init__(self, access: Access) -> None:
        self._timeout_s = access.timeout_s
        self._channel = access.channel(CHANNEL)
        channel = as_user(self._channel, STRANGER, access.timeout_s)
        self._kv, self._watch = rpc.KVStub(channel), rpc.WatchStub(channel)

    def own(self, value: str) -> None:
        """Write and read what is the stranger's own."""
        key = STRANGER_RANGE[0] + b"own"
        self._kv.Put(rpc.PutRequest(key=key, value=value.encode()), timeout=self._timeout_s)
        found = self._kv.Range(rpc.RangeRequest(key=key), timeout=self._timeout_s).kvs
        if not found or found[0].value != value.encode():
            raise ConnectionError("etcd shows a stranger another value than it acknowledged")

    def read(self, key: str) -> list[Any]:
        """Return what any way of reading showed, or raise RefusedError("denied")."""
        name, (low, high) = data_key(key), WORKER_RANGE
        asked = [
            rpc.RangeRequest(key=name),
            rpc.RangeRequest(key=name, serializable=True),
            rpc.RangeRequest(key=low, range_end=high),
            rpc.RangeRequest(key=STRANGER_RANGE[0], range_end=_FROM_KEY_ON),
        ]
        inside = rpc.TxnRequest(success=[rpc.RequestOp(request_range=asked[0])])
        ways: list[Callable[[], Any]] = [
            *(partial(self._range, one) for one in asked),
            lambda: self._kv.Txn(inside, timeout=self._timeout_s).responses[0].response_range.kvs,
        ]
        return [unpack(kv.value).value for way in _allowed(ways) for kv in way if _is(kv, name)]

    def write(self, key: str, value: str) -> list[Any]:
        """Return the ways of writing that were taken, or raise RefusedError("denied")."""
        put = rpc.PutRequest(key=data_key(key), value=value.encode(), prev_kv=True)
        txn = rpc.TxnRequest(success=[rpc.RequestOp(request_put=put)])
        nested = rpc.TxnRequest(success=[rpc.RequestOp(request_txn=txn)])
        gone = rpc.DeleteRangeRequest(key=data_key(key) + b"/nothing", prev_kv=True)
        taken = _allowed(
            [
                lambda: self._kv.Put(put, timeout=self._timeout_s) and "put",
                lambda: self._kv.Txn(txn, timeout=self._timeout_s) and "transaction",
                lambda: self._kv.Txn(nested, timeout=self._timeout_s) and "nested transaction",
                lambda: self._kv.DeleteRange(gone, timeout=self._timeout_s) and "delete",
            ]
        )
        return list(taken)

    def watch(self, key: str, for_s: float) -> list[Any]:
        """Return the values of events that any way of watching brought within `for_s` each.

        Raises RefusedError("denied") when each watch was refused.
        """
        name = data_key(key)
        spans = [(name, b""), WORKER_RANGE, (STRANGER_RANGE[0], _FROM_KEY_ON), (b"\0", b"\0")]
        ways = [partial(self._events, low, high, for_s) for low, high in spans]
        return [unpack(kv.value).value for way in _allowed(ways) for kv in way if _is(kv, name)]

    def close(self) -> None:
        """Drop the connection."""
        self._channel.close()

    def _range(self, asked: Any) -> Any:
        return self._kv.Range(asked, timeout=self._timeout_s).kvs

    def _events(self, key: bytes, end: bytes, for_s: float) -> list[Any]:
        """Return the key-value records of the events of one watch."""
        done = threading.Event()

        def requests() -> Iterator[Any]:
            create = rpc.WatchCreateRequest(key=key, range_end=end)
            yield rpc.WatchRequest(create_request=create)
            done.wait(for_s + self._timeout_s)  # the end of the requests ends the stream

        until = time.monotonic() + for_s
        answers = self._watch.Watch(requests(), timeout=for_s)
        seen: list[Any] = []
        try:
            for answer in answers:
                if answer.canceled:
                    raise RefusedError("denied", answer.cancel_reason)
                seen += [event.kv for event in answer.events]
        except grpc.RpcError as error:
            if time.monotonic() < until and error.code().name != "DEADLINE_EXCEEDED":
                raise
        finally:
            done.set()
            answers.cancel()
        return seen


def _is(kv: Any, name: bytes) -> bool:
    return bool(kv.key == name)


def _allowed(ways: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what the ways brought that were not denied.

    Raises RefusedError("denied") when all were; what else goes wrong is raised as it comes.
    """
    brought, refused = [], "no way was tried"
    for way in ways:
        try:
            brought.append(way())
        except RefusedError as error:
            refused = str(error).removeprefix("denied: ")
        except grpc.RpcError as error:
            if error.code().name not in _DENIED:
                raise
            refused = error.details() or error.code().name
    if not brought:
        raise RefusedError("denied", refused)
    return brought
