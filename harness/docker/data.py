"""What lies in the data folder of a node, which the holder keeps while nothing else runs there."""

import base64
import errno
from collections.abc import Mapping
from typing import Any

from harness.docker.holder import Holder

_BOUND_S = 60.0


class HeldFolder:
    """The data folder of one node; see `DataFolder` and `Disk` in `harness.site`.  Calls block."""

    holder: Holder
    _fillers: set[str]

    def files(self) -> Mapping[str, int]:
        """Return the regular files with their sizes in bytes."""
        found: dict[str, int] = self._ask("files")
        return found

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        return base64.b64decode(self._ask("read", path))

    def change(self, path: str, offset: int, data: bytes) -> None:
        """Write `data` at an offset."""
        self._ask("change", path, offset, base64.b64encode(data).decode())

    def keep_secret(self, path: str, data: bytes) -> None:
        """Write a file that nobody else may read."""
        self._ask("keep_secret", path, base64.b64encode(data).decode())

    def cut(self, path: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        self._ask("cut", path, size)

    def keep(self, copy: str) -> None:
        """Copy the folder as it lies now."""
        self._ask("keep", copy)

    def put_back(self, copy: str | None, *, aside: str | None = None) -> None:
        """Replace what lies there by a copy, or by nothing; keep it as the copy `aside`."""
        self._ask("put_back", copy, aside)

    def drop(self, copy: str) -> None:
        """Delete a copy."""
        self._ask("drop", copy)

    def digest(self, copy: str | None = None) -> str:
        """Return a hash over all names and contents of the folder, or of a copy."""
        return str(self._ask("digest", copy))

    # --------------------------------------------------------------------- room

    def fill(self, owner: str) -> None:
        """Leave no room."""
        self._fillers.add(owner)
        self._ask("fill")

    def forbid_writes(self, owner: str) -> None:
        """Raise OSError: that would take a right over all mounts of the engine's machine."""
        raise OSError(errno.EOPNOTSUPP, "a container's disk is made full, and not read-only")

    def make_whole(self, owner: str) -> None:
        """Give room back, when this was the last owner."""
        self._fillers.discard(owner)
        if not self._fillers:
            self._ask("make_room")

    def limited(self) -> bool:
        """Whether any owner still limits the disk."""
        return bool(self._fillers)

    def free_bytes(self) -> int:
        """Return the room that is left, as the file system says."""
        return int(self._ask("free_bytes"))

    def try_to_write(self) -> str:
        """Let the holder write a block; return "" or the error's name."""
        return str(self._ask("try_to_write"))

    def _ask(self, call: str, *arguments: Any) -> Any:
        return self.holder.ask("data", call, arguments, bound_s=_BOUND_S)
