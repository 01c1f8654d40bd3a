"""What `winkle` writes: results to standard output, everything else to standard error.

Text that came from a target is data: its control characters are shown escaped, so that a server
cannot colour, clear or retitle the terminal of the person who reads its error message.  A reader
that goes away early (`winkle list | head -1`), a closed or full output: no error, and no change of
any exit code, since what counts is on disk.
"""

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal, TextIO

Colour = Literal["red", "green", "yellow", "bold"]
_CODES: dict[Colour, str] = {"red": "31", "green": "32", "yellow": "33", "bold": "1"}


def out(text: str = "") -> None:
    """Write a line of the result."""
    _write(sys.stdout, text)


def err(text: str) -> None:
    """Write a line about the work itself: progress, warnings, errors."""
    _write(sys.stderr, text)


def printable(text: str) -> str:
    """Return `text` with every control character except the line feed escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def colourful(stream: TextIO | None) -> bool:
    """Whether colours are wanted there: a terminal, and neither NO_COLOR nor TERM=dumb."""
    return (
        stream is not None
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") != "dumb"
    )


def paint(text: str, colour: Colour) -> str:
    """Return `text` in a colour where standard output wants colours."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colourful(sys.stdout) else text


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table whose columns are as wide as their widest line.

    A cell may be of several lines; its row is then a text of as many.
    """
    cells = [[cell.split("\n") for cell in row] for row in (header, *rows)]
    widths = [max(len(line) for row in cells for line in row[i]) for i in range(len(header))]
    return ["\n".join(_lines(row, widths)) for row in cells]


def _lines(row: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for parts in zip_longest(*row, fillvalue=""):
        yield "  ".join(part.ljust(w) for part, w in zip(parts, widths, strict=True)).rstrip()


def wrapped(text: str, columns: int) -> str:
    """Return a text in lines of that many columns; a word that is longer stays whole."""
    return textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # the caller closed it before we began
        return
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError:
        # A reader that left, a full disk: what is shown changes no verdict.  The buffer still
        # holds the line and would fail again at exit, so it must drain somewhere.
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, stream.fileno())
        os.close(sink)
