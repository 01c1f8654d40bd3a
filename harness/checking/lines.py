"""JSON lines straight into columns, without an object an operation in memory.

This road is for what our own runs write: every line whole, times and keys in it, calls that pair.
Whatever is unusual makes it give up, and the history is read the slow way, which has the words for
what is wrong with it.
"""

from pathlib import Path
from typing import IO

import msgspec

from harness.checking.columns import Columns, ColumnsDisagreeError, load, save
from harness.checking.events import Event, Events, UnusualError
from harness.errors import MalformedHistoryError
from harness.importing.source import unpacked

_CHUNK = 1 << 18  # small enough for a processor's cache: larger ones are slower
_SLOW = (
    UnusualError,
    MalformedHistoryError,
    msgspec.DecodeError,
    UnicodeDecodeError,
    RecursionError,
    OverflowError,
)


def columns_of_lines(path: Path) -> Columns | None:
    """Return the columns of a file of JSON lines, None when it has to be read the slow way.

    Raises OSError, and UsageError for a packing that cannot be read here.
    """
    events = Events()
    try:
        with unpacked(path) as file:
            _read(file, events)
        return events.columns()
    except _SLOW:
        return None


def beside(lines: Path) -> Path:
    """Return where the columns of a history file are: `history.npz` beside `history.jsonl`."""
    return lines.with_suffix(".npz")


def write_beside(lines: Path) -> Path | None:
    """Write the columns of a history file beside it, whole or not at all; None when it has none.

    Raises OSError.
    """
    columns = columns_of_lines(lines)
    if columns is None:
        return None
    part = lines.with_name(f".{lines.stem}.part.npz")
    save(columns, part, lines)
    return part.replace(beside(lines))


def read_recorded(lines: Path) -> tuple[Columns | None, str | None]:
    """Return the columns of a history file, from beside it when they were made of it.

    The text says what is wrong with the columns beside it; they are then made of the lines.  None
    when the lines have to be read the slow way.  Raises OSError.
    """
    wrong = None
    if beside(lines).is_file():
        try:
            return load(beside(lines), lines), None
        except (ColumnsDisagreeError, OSError) as error:
            wrong = f"the columns beside the history are of no use: {error}"
    return columns_of_lines(lines), wrong


def _read(file: IO[bytes], events: Events) -> None:
    decoder = msgspec.json.Decoder(Event)
    while data := file.read(_CHUNK):
        data += file.readline(_CHUNK)
        found = decoder.decode_lines(data)
        if not data.endswith(b"\n") or len(found) != data.count(b"\n"):
            raise UnusualError
        events.add(found)
