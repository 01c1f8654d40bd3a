"""A file of somebody else's history as a stream: unpacked, and recognised by its content.

Compression is told by the first bytes, never by the name.  A line (or a word of EDN) longer than
`ATOM_MAX` bytes is refused: it is no event, and reading it whole is how a tool dies of a wrong
file.
"""

import contextlib
import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from harness.errors import MalformedHistoryError, UsageError

Syntax = Literal["jsonl", "edn", "log"]
ATOM_MAX = 16 << 20
_HEAD = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"


@contextmanager
def unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file, plain or compressed, as a stream of bytes.

    Raises OSError, UsageError, and MalformedHistoryError where the packing is damaged.
    """
    with path.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        raw: Any = file
        if magic.startswith(_GZIP):
            raw = gzip.GzipFile(fileobj=file, mode="rb")
        elif magic == _ZSTD:
            raw = _zstd(file, path)
        try:
            with io.BufferedReader(raw, _HEAD) as stream:
                if stream.peek(3).startswith(_BOM):
                    stream.read(3)
                yield stream
        except Exception as error:
            if _damaged(error):
                raise MalformedHistoryError(1, f"the packed file is damaged: {error}") from error
            raise


def _zstd(file: IO[bytes], path: Path) -> Any:
    """Unpack zstd with what there is: the package, or the standard library from 3.14 on."""
    with contextlib.suppress(ImportError):
        package: Any = importlib.import_module("zstandard")
        return package.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd").ZstdFile(file)
    raise UsageError(
        f"{path}: compressed with zstd, which this Python cannot read: "
        "install `zstandard`, or unpack the file first"
    )


def _damaged(error: Exception) -> bool:
    if isinstance(error, EOFError | gzip.BadGzipFile | zlib.error):
        return True
    return type(error).__name__ == "ZstdError"


def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number, bytes and completeness of each line.  Raises MalformedHistoryError."""
    number = 0
    while line := stream.readline(ATOM_MAX):
        number += 1
        whole = line.endswith(b"\n")
        if not whole and len(line) >= ATOM_MAX:
            raise MalformedHistoryError(
                number, f"longer than {ATOM_MAX >> 20} MB: this is no event"
            )
        yield number, line, whole


def syntax(stream: io.BufferedReader) -> Syntax:
    """Tell how a history is written from its first bytes.  Raises MalformedHistoryError."""
    head = stream.peek(_HEAD).decode("utf-8", "backslashreplace")
    rest = _after_comments(head)
    inner = rest[1:].lstrip(" \t\r\n,[({")
    if rest.startswith("[") and inner.startswith('"'):
        raise MalformedHistoryError(1, "a JSON array: write one operation a line")
    if rest.startswith("{") and rest[1:].lstrip()[:1] in ('"', "}"):
        return "jsonl"
    return "edn" if rest[:1] in ("{", "[", "(", "#") else "log"


def _after_comments(text: str) -> str:
    text = text.lstrip(" \t\r\n,")
    while text.startswith(";"):
        text = text.partition("\n")[2].lstrip(" \t\r\n,")
    return text
