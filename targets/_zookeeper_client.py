"""The clients of ZooKeeper, over kazoo; imported only in processes that act as one.

Every grant has a session of its own, so giving up one lock gives up no other, and an outcome that
nobody knows is cleared up by ending the session: the node goes with it.  kazoo tries the servers in
order and stays with the one that accepts, and would queue a request while it has no connection: the
session is asked first, and nothing is sent late.  It repeats no request.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from harness.target import Grant, RefusedError, Stored
from targets._no_effect import ChangedMeanwhileError, NotAskedError, NotConnectedError
from targets._stored import pack, unpack

STORE_SESSION_S = 10.0
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1, "max_delay": 0.2}
_NEVER = {"max_tries": 0}
_NOT_THE_NODE = (NoNodeError, BadVersionError)


class Session:
    """One session, from its start to its end; kazoo would go on with a new one, this does not.

    `patient`: a broken connection is no end, a server must say so.  Used by two threads.
    """

    def __init__(self, hosts: str, ttl_s: float, timeout_s: float, *, patient: bool) -> None:
        """Connect.  Raises NotConnectedError."""
        self._timeout_s = timeout_s
        self._patient = patient
        self._over = threading.Event()
        self.ttl_s = ttl_s
        self._zk = KazooClient(
            hosts=hosts,
            timeout=ttl_s,
            randomize_hosts=False,
            connection_retry=_RETRY,
            command_retry=_NEVER,
        )
        if not self._zk.start_async().wait(timeout_s):
            self.end()
            raise NotConnectedError(f"no session within {timeout_s:g} s")
        self._zk.add_listener(self._changed)
        if self._zk.state != KazooState.CONNECTED:
            self._changed(self._zk.state)

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST or (state == KazooState.SUSPENDED and not self._patient):
            self.end()

    @property
    def over(self) -> bool:
        """Whether it has ended, as far as the library knows."""
        return self._over.is_set()

    def ask(self, verb: str, *args: Any, **options: Any) -> Any:
        """Return the answer to one request of kazoo's.

        Raises NotConnectedError, KazooException (the server's no), or KazooTimeoutError.
        """
        if self.over or not self._zk.connected:
            raise NotConnectedError("the session has no connection")
        started = getattr(self._zk, f"{verb}_async")(*args, **options)
        return started.get(timeout=self._timeout_s)

    def commit(self, fill: Callable[[Any], None]) -> list[Any]:
        """Return the results of a transaction; if one is an error, nothing was done."""
        if self.over or not self._zk.connected:
            raise NotConnectedError("the session has no connection")
        transaction = self._zk.transaction()
        fill(transaction)
        done: list[Any] = transaction.commit_async().get(timeout=self._timeout_s)
        return done

    def end(self) -> None:
        """End it, and its nodes with it: now if a server is told, else when its time is over."""
        if not self._over.is_set():
            self._over.set()
            # It waits for threads of kazoo's, of which this may be one.
            threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        with suppress(KazooException, OSError, RuntimeError, AttributeError):
            self._zk.stop()
            self._zk.close()


@dataclass(frozen=True, eq=False)
class Node:
    """The node of a grant, and the session that it lives in."""

    session: Session
    path: str


class ZooKeeperLock:
    """A queue of ephemeral sequential nodes for every lock; the handle of a grant is its `Node`."""

    def __init__(self, hosts: str, timeout_s: float, *, patient: bool) -> None:
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._patient = patient
        self._idle: Session | None = None
        self._granted: set[Session] = set()

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held").

        The session is new, or has held nothing yet; the look at the queue keeps a waiter from
        creating a node at every try.
        """
        session = self._take_idle(ttl_s)
        try:
            grant = self._try(session, key)
        except RefusedError:
            self._idle = session
            raise
        except Exception:
            session.end()  # whatever was created goes with it
            raise
        self._granted.add(session)
        return grant

    def _try(self, session: Session, key: str) -> Grant:
        queue = lock_path(key)
        try:
            busy = session.ask("get_children", queue)
        except NoNodeError:
            busy = []
        except (KazooException, KazooTimeoutError) as error:
            raise NotAskedError(repr(error)) from error
        if busy:
            raise RefusedError("held")
        how = {"ephemeral": True, "sequence": True, "makepath": True, "include_data": True}
        path, stat = session.ask("create", f"{queue}/lock-", **how)
        if min(session.ask("get_children", queue)) != path.rpartition("/")[2]:
            session.ask("delete", path)
            raise RefusedError("held")
        return Grant(key, token=stat.czxid, ttl_s=session.ttl_s, handle=Node(session, path))

    def _take_idle(self, ttl_s: float) -> Session:
        """Return a session that has no node."""
        session, self._idle = self._idle, None
        if session is not None and session.ttl_s == ttl_s and not session.over:
            return session
        if session is not None:
            session.end()
        return Session(self._hosts, ttl_s, self._timeout_s, patient=self._patient)

    def renew(self, grant: Grant) -> None:
        """Show that the session lives, or raise RefusedError("not-holder"); any request does."""
        node = _node(grant)
        if node.session.ask("exists", node.path) is None:
            raise RefusedError("not-holder", "the lock's node is gone")

    def release(self, grant: Grant) -> None:
        """Delete the lock's node, or raise RefusedError("not-holder")."""
        node = _node(grant)
        self._granted.discard(node.session)
        try:
            node.session.ask("delete", node.path)
        except NoNodeError as gone:
            raise RefusedError("not-holder", "the lock's node is gone") from gone
        finally:
            node.session.end()

    def check(self, grant: Grant) -> bool:
        """Return whether the lock's node is there, as the server sees it that is asked."""
        node = grant.handle
        if not isinstance(node, Node) or node.session.over:
            return False
        return node.session.ask("exists", node.path) is not None

    def believes(self, grant: Grant) -> bool:
        """Return what kazoo says of the session, as far as it is trusted."""
        return isinstance(grant.handle, Node) and not grant.handle.session.over

    def close(self) -> None:
        """End every session."""
        for session in (*self._granted, *([self._idle] if self._idle else [])):
            session.end()


def _node(grant: Grant) -> Node:
    """Return the node of a grant whose session lives, or raise RefusedError("not-holder")."""
    if not isinstance(grant.handle, Node) or grant.handle.session.over:
        raise RefusedError("not-holder", "the session has ended")
    return grant.handle


class ZooKeeperStore:
    """A node for every resource; empty until something is written."""

    def __init__(self, hosts: str, timeout_s: float, fence: str, *, sync: bool) -> None:
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._fence = fence
        self._sync = sync
        self._session: Session | None = None
        self._made: set[str] = set()
        self._nodes: dict[tuple[str, int], str] = {}

    def _ask(self, verb: str, *args: Any, **options: Any) -> Any:
        return self._connected().ask(verb, *args, **options)

    def _connected(self) -> Session:
        if self._session is None or self._session.over:
            self._session = Session(self._hosts, STORE_SESSION_S, self._timeout_s, patient=True)
        return self._session

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        path = data_path(key)
        if self._sync:
            self._ask("sync", path)
        try:
            data, _ = self._ask("get", path)
        except NoNodeError:
            return None
        return unpack(data) if data else None

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write, or raise RefusedError("fenced" | "not-holder").

        Only `checked` knows what it overwrote.
        """
        path, data = data_path(key), pack(value, token)
        self._make(path)
        if self._fence == "checked":
            return self._write_checked(path, data, token)
        if self._fence == "guarded":
            self._write_guarded(path, data, self._node_of(key, token))
        else:
            self._ask("set", path, data)
        return None

    def _make(self, path: str) -> None:
        if path not in self._made:
            with suppress(NodeExistsError):
                self._ask("create", path, b"", makepath=True)
            self._made.add(path)

    def _write_guarded(self, path: str, data: bytes, node: str | None) -> None:
        if node is not None:

            def fill(transaction: Any) -> None:
                transaction.check(node, 0)
                transaction.set_data(path, data)

            checked, done = self._connected().commit(fill)
            if isinstance(done, Exception) and not isinstance(checked, _NOT_THE_NODE):
                raise done
            if not isinstance(checked, Exception):
                return
        raise RefusedError("not-holder", "no node of the lock has this token")

    def _node_of(self, key: str, token: int | None) -> str | None:
        """Return the path of the lock's node that has a token; its name is never used twice."""
        if token is None or token <= 0:
            return None
        known = self._nodes.get((key, token))
        if known is not None:
            return known
        queue = lock_path(key)
        self._ask("sync", queue)
        try:
            names: Sequence[str] = self._ask("get_children", queue)
        except NoNodeError:
            return None
        for name in sorted(names):
            stat = self._ask("exists", f"{queue}/{name}")
            if stat is not None and stat.czxid == token:
                self._nodes[key, token] = f"{queue}/{name}"
                return self._nodes[key, token]
        return None

    def _write_checked(self, path: str, data: bytes, token: int | None) -> Stored | None:
        if token is None:
            raise RefusedError("fenced", "the write carries no token")
        self._ask("sync", path)
        before, stat = self._ask("get", path)
        old = unpack(before) if before else None
        if old is not None and old.token is not None and token < old.token:
            raise RefusedError("fenced", f"token {token} is below {old.token}, the highest seen")
        try:
            self._ask("set", path, data, version=stat.version)
        except BadVersionError as changed:
            raise ChangedMeanwhileError(path) from changed
        return old

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.end()


def lock_path(key: str) -> str:
    """Return the node under which a lock is queued for."""
    return f"/vanwinkle/lock/{key}"


def data_path(key: str) -> str:
    """Return the node that holds the value of the resource `key`."""
    return f"/vanwinkle/data/{key}"
