"""How Atlasmart's clients and servers talk: one JSON line a request, one JSON line an answer.

A server is one thread, so it decides one request at a time, in one order; without asyncio it starts
in half the time.  A line that it does not understand gets an answer that says so, and the
connection goes on; a half line at the end of a connection is no request.
`{"do": "acquire", "key": "k", "ttl_s": 2.0}` gets
`{"kind": "ok", "result": {"token": 7, "ttl_s": 2.0}}` or `{"kind": "refused", "text": "held"}`.
"""

import contextlib
import selectors
import socket
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, cast

import msgspec

from harness.target import RefusedError

MAX_LINE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_BACKLOG = 100
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Request(
    msgspec.Struct, frozen=True, tag_field="do", tag=str.lower, forbid_unknown_fields=True
):
    """A request about one lock or one resource."""

    key: str


class Acquire(Request, frozen=True):
    """Take the lock for `ttl_s` seconds."""

    ttl_s: Seconds


class Renew(Request, frozen=True):
    """Extend the lease by its full TTL."""

    token: int | None


class Release(Request, frozen=True):
    """Give the lock back."""

    token: int | None


class Check(Request, frozen=True):
    """Say whether this token holds the lock now."""

    token: int | None


class Read(Request, frozen=True):
    """Return value and token, or null."""


class Write(Request, frozen=True):
    """Write; the answer holds what was overwritten, or null."""

    value: Any
    token: int | None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok` with a result, `refused` with the code word first, or `bad` for no proper request."""

    kind: Literal["ok", "refused", "bad"]
    result: Any = None
    text: str = ""


def answer(handle: Callable[[Any], Any], requests: Any, line: bytes) -> Answer:
    """Decode one line as one of the types `requests`, decide, and return the answer."""
    try:
        request = msgspec.json.decode(line, type=requests)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Answer("bad", text=str(error))
    try:
        return Answer("ok", handle(request))
    except RefusedError as refusal:
        return Answer("refused", text=str(refusal))


class Talk:
    """One connection: its client's half lines, and answers that it has not taken yet."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._heard = b""
        self._over = False
        self.untaken = b""

    def goes_on(self, decide: Callable[[bytes], Answer]) -> bool:
        """Answer what came, unless answers wait; return whether the connection goes on."""
        try:
            if not self.untaken and not self._hear(decide):
                return False
            self.untaken = self.untaken[self._stream.send(self.untaken) :]
        except BlockingIOError:
            return True
        except ConnectionError:  # the client is gone; what was decided stays decided
            return False
        return not self._over or bool(self.untaken)

    def _hear(self, decide: Callable[[bytes], Answer]) -> bool:
        """Read, and decide each line that is whole; return False at the end of the connection."""
        data = self._stream.recv(_READ_BYTES)
        *lines, self._heard = (self._heard + data).split(b"\n")
        answers = [decide(line) for line in lines if len(line) < MAX_LINE_BYTES]
        if len(answers) < len(lines) or len(self._heard) >= MAX_LINE_BYTES:
            answers.append(Answer("bad", text="the line is too long"))
            self._over = True
        self.untaken = b"".join(msgspec.json.encode(one) + b"\n" for one in answers)
        return bool(data)


def serve(address: str, port: int, requests: Any, handle: Callable[[Any], Any]) -> None:
    """Answer for good; raises what a decision raised (a journal that fails)."""
    decide = partial(answer, handle, requests)
    door = socket.create_server((address, port), backlog=_BACKLOG)
    door.setblocking(False)
    with selectors.DefaultSelector() as ready:
        ready.register(door, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in ready.select():
                    stream = cast(socket.socket, key.fileobj)
                    if stream is door:
                        _let_in(ready, door)
                    elif key.data.goes_on(decide):
                        waits = selectors.EVENT_WRITE if key.data.untaken else selectors.EVENT_READ
                        ready.modify(stream, waits, key.data)
                    else:
                        ready.unregister(stream)
                        stream.close()
        finally:
            for key in list(ready.get_map().values()):
                cast(socket.socket, key.fileobj).close()


def _let_in(ready: selectors.BaseSelector, door: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError, ConnectionError):  # it is gone again
        stream, _ = door.accept()
        stream.setblocking(False)
        ready.register(stream, selectors.EVENT_READ, Talk(stream))
