"""An append-only file of JSON lines that survives kill -9.

A record is on the disk before anybody hears of it, and it is there whole or not at all: a last line
without its end was never answered, and is cut off before the next one is written.  A server that
cannot write its file must not go on: after a failed fsync nobody knows what the disk holds, so the
error ends the process, and the restart reads what is really there.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.errors import TargetError
from harness.history import split_lines

JOURNAL = "journal.jsonl"
Record = TypeVar("Record")


class JournalError(Exception):
    """The file could not be written; the process must end."""


def records(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Yield the complete records of a journal; a missing file holds none.

    Raises TargetError where a complete line is no record: a crash does not do that, a disk does.
    """
    lines, _ = split_lines(path.read_bytes() if path.exists() else b"")
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TargetError(f"{path}, line {number} is no record: {error}") from error


class Journal:
    """The file, open for appending, with a torn last line cut off."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        data = path.read_bytes()
        os.ftruncate(self._fd, data.rfind(b"\n") + 1)

    def append(self, record: object) -> None:
        """Write one record and wait for the disk.  Raises JournalError."""
        view = memoryview(msgspec.json.encode(record) + b"\n")
        try:
            while view:
                view = view[os.write(self._fd, view) :]
            os.fsync(self._fd)
        except OSError as error:
            raise JournalError(str(error)) from error
