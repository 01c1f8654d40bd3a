"""How a value and the token of its write lie in a store that knows only bytes.

They are one JSON array `[token, value]`, so that they can never be torn apart.  Bytes that somebody
else put there are no reason to fail: they are shown as text, and carry no token.
"""

from typing import Any

import msgspec

from harness.target import Stored

_decoder = msgspec.json.Decoder(tuple[int | None, Any])


def pack(value: Any, token: int | None) -> bytes:
    """Return the bytes to store."""
    return msgspec.json.encode((token, value))


def unpack(data: bytes) -> Stored:
    """Return what `pack` stored; foreign bytes come back as text, invalid UTF-8 escaped."""
    try:
        token, value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Stored(data.decode(errors="backslashreplace"))
    return Stored(value, token)
