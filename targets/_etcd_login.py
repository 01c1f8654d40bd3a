"""Calls of etcd that bear the token of a user.

A call without a token is one of nobody.  The token is asked for before the first call and again
after etcd has called it invalid; the call itself is not repeated.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from aetcd import rpc

from targets._etcd_access import User


def as_user(channel: Any, user: User, timeout_s: float) -> Any:
    """Return the channel with calls that bear the token of a user."""
    return grpc.intercept_channel(channel, _Tokens(channel, user, timeout_s))


@dataclass(frozen=True)
class _Call(grpc.ClientCallDetails):  # type: ignore[misc] # gRPC ships no types
    """The details of a call, with its token."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Tokens(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc] # gRPC ships no types
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    """Puts the token of a user on each call."""

    def __init__(self, channel: Any, user: User, timeout_s: float) -> None:
        self._auth = rpc.AuthStub(channel)
        self._user = user
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._token: str | None = None

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        """Make a call, and forget the token when etcd does not know it."""
        answer = call(self._signed(details), request)
        error = answer.exception() if answer.done() else None
        if error is not None and "invalid auth token" in str(error):
            self._token = None
        return answer

    def intercept_stream_stream(self, call: Any, details: Any, requests: Any) -> Any:
        """Open a stream."""
        return call(self._signed(details), requests)

    def _signed(self, details: Any) -> _Call:
        with self._lock:
            if self._token is None:
                asked = rpc.AuthenticateRequest(name=self._user.name, password=self._user.password)
                self._token = self._auth.Authenticate(asked, timeout=self._timeout_s).token
        return _Call(
            details.method,
            details.timeout,
            [*(details.metadata or ()), ("token", self._token)],
            details.credentials,
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
