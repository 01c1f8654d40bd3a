"""The data volume of a node, inside of its holder: the folder, and copies of it beside it.

The volume lies in memory and has a size, so it is full when a file beside the folder has taken the
room that is left.  Copies and damage, made while nothing runs there, are not bound by that.
"""

import base64
import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.local.disk import Folder

_BLOCK_BYTES = 4096
_TAKE_ROOM = {"change", "cut", "keep", "put_back", "drop"}


class Volume(Folder):
    """The folder, with bytes as text that a line can carry."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._root = root
        self._ballast = root / "ballast"
        self.data.chmod(0o777)  # an image may run its server as a user of its own

    def carry_out(self, call: str, arguments: Sequence[Any]) -> Any:
        """Carry out a call of `harness.site.DataFolder`, or of this class."""
        with self._room() if call in _TAKE_ROOM else contextlib.nullcontext():
            return self._carry_out(call, arguments)

    def _carry_out(self, call: str, arguments: Sequence[Any]) -> Any:
        match call:
            case "read":
                return base64.b64encode(self.read(*arguments)).decode()
            case "change":
                path, offset, data = arguments
                return self.change(path, offset, base64.b64decode(data))
            case "keep_secret":
                path, data = arguments
                return self.keep_secret(path, base64.b64decode(data))
            case "put_back":
                copy, aside = arguments
                self.put_back(copy, aside=aside)
                self.data.chmod(0o777)
                return None
        return getattr(self, call)(*arguments)

    def fill(self) -> None:
        """Take all the room that is left; blocks that files have already go on taking writes."""
        with self._ballast.open("ab") as file:
            size = self.free_bytes()
            while size:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # Somebody else took some of it.  Half a block more would cost a whole one.
                    size = size // 2 // _BLOCK_BYTES * _BLOCK_BYTES

    def make_room(self) -> None:
        """Give the room back; it may have been given back before."""
        self._ballast.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Return the room that is left, as the file system says."""
        state = os.statvfs(self._root)
        return state.f_bfree * state.f_frsize

    def try_to_write(self) -> str:
        """Write a block; return "" or the error's name."""
        probe = self._root / "probe"
        try:
            probe.write_bytes(bytes(_BLOCK_BYTES))
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))
        finally:
            probe.unlink(missing_ok=True)
        return ""

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """Give room for a moment."""
        full = self._ballast.exists()
        self.make_room()
        try:
            yield
        finally:
            if full:
                self.fill()
