"""How Atlasmart's clients and servers talk: one JSON line a request, one JSON line an answer.

A server is one thread with one event loop, so it decides one request at a time, in one order.  A
line that it does not understand gets an answer that says so, and the connection goes on; a half
line at the end of a connection is no request.  `{"do": "acquire", "key": "k", "ttl_s": 2.0}` gets
`{"kind": "ok", "result": {"token": 7, "ttl_s": 2.0}}` or `{"kind": "refused", "text": "held"}`.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from harness.target import RefusedError

MAX_LINE_BYTES = 1 << 20
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


async def serve(address: str, port: int, requests: Any, handle: Callable[[Any], Any]) -> None:
    """Answer for good; ends with the error that a decision raised (a journal that fails)."""
    broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                writer.write(msgspec.json.encode(answer(handle, requests, line)) + b"\n")
                await writer.drain()
        except ValueError:  # what readline() makes of a line above the limit; where it ends is lost
            writer.write(msgspec.json.encode(Answer("bad", text="the line is too long")) + b"\n")
        except ConnectionError:
            pass  # the client is gone; what was decided stays decided
        except Exception as error:  # noqa: BLE001 - it ends the server, in serve()
            if not broken.done():
                broken.set_exception(error)
        finally:
            writer.close()

    async with await asyncio.start_server(talk, address, port, limit=MAX_LINE_BYTES):
        await broken
