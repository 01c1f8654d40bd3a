"""The clients of Atlasmart: one blocking connection each, made when it is needed, never a retry.

After any failure the connection is dropped, so that a late answer can never be taken for the answer
to the next request.
"""

import select
import socket
from typing import Any

import msgspec

from harness.target import Grant, Place, RefusedError, Stored
from targets.atlasmart.wire import (
    Acquire,
    Answer,
    Check,
    Read,
    Release,
    Renew,
    Request,
    Write,
)


class BadRequestError(Exception):
    """The server did not understand the request, and did nothing."""


class _Client:
    """A connection to one server."""

    def __init__(self, place: Place, timeout_s: float) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def _connected(self) -> socket.socket:
        # Between requests nothing may arrive; if the idle connection is readable, it has ended.
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(
                (self._place.address, self._place.port), self._timeout_s
            )
        return self._socket

    def _ask(self, request: Request) -> Any:
        """Return the result of one request.  Raises RefusedError, OSError, BadRequestError."""
        try:
            wire = self._connected()
            wire.sendall(msgspec.json.encode(request) + b"\n")
            answer = msgspec.json.decode(_line(wire), type=Answer)
        except BaseException:
            self.close()
            raise
        if answer.kind == "refused":
            code, _, text = answer.text.partition(": ")
            raise RefusedError(code, text)
        if answer.kind == "bad":
            raise BadRequestError(answer.text)
        return answer.result

    def close(self) -> None:
        """Drop the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _line(wire: socket.socket) -> bytes:
    with wire.makefile("rb") as lines:
        line = lines.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection ended before the answer")
    return line


class AtlasmartLock(_Client):
    """A lock client; the token is all that a holder needs."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held")."""
        granted = self._ask(Acquire(key, ttl_s))
        return Grant(key, token=granted["token"], ttl_s=granted["ttl_s"])

    def renew(self, grant: Grant) -> None:
        """Extend the lease by its full TTL or raise RefusedError("not-holder")."""
        self._ask(Renew(grant.key, grant.token))

    def release(self, grant: Grant) -> None:
        """Give the lock back or raise RefusedError("not-holder")."""
        self._ask(Release(grant.key, grant.token))

    def check(self, grant: Grant) -> bool:
        """Return whether the server says that this grant holds the lock now."""
        return bool(self._ask(Check(grant.key, grant.token)))


class AtlasmartStore(_Client):
    """A store client."""

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        found = self._ask(Read(key))
        return None if found is None else Stored(**found)

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write and return what was overwritten, or raise RefusedError("fenced")."""
        old = self._ask(Write(key, value, token))
        return None if old is None else Stored(**old)
