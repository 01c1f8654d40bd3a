"""Values of a foreign system made safe to write down.

A history is JSON, and JSON is Unicode: bytes that are no UTF-8 are escaped with backslashes, so
that they survive as text that a person can read.  Nothing else is changed, whatever it looks like.
"""

from typing import Any


def plain(value: Any) -> Any:
    """Return `value` as something that JSON can carry, unchanged where it already can."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return plain(repr(value))


def shorten(text: str, limit: int = 200) -> str:
    """Return at most about `limit` characters of a text, saying how long it was."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


class Lines:
    """Whole lines out of pieces as they come; a long line costs no more than its length."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this piece, without their ends."""
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._pieces, whole[0]])
            self._pieces.clear()
        self._pieces.append(rest)
        return whole


def tail(data: bytes, lines: int = 20, limit: int = 4000) -> str:
    """Return the last lines of a log as text, at most about `limit` characters."""
    text = data[-4 * limit :].decode("utf-8", "backslashreplace")
    return "\n".join(text.rstrip().splitlines()[-lines:])[-limit:]
