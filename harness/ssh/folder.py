"""The data folder of a node on a host, seen from the controller.

What is done to it is done by the agent, with the code of the local backend; a copy never travels.
"""

import base64
from collections.abc import Mapping
from typing import Any

from harness.ssh.station import Station


class RemoteFolder:
    """See `harness.site.DataFolder`.  Every method raises OSError as the file system does."""

    def __init__(self, station: Station, node: str) -> None:
        self._station = station
        self._node = node

    def _do(self, method: str, **arguments: Any) -> Any:
        return self._station.link.ask("disk", node=self._node, method=method, arguments=arguments)

    def files(self) -> Mapping[str, int]:
        """Return the regular files with their sizes in bytes."""
        return dict(self._do("files"))

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        return base64.b64decode(self._do("read", path=path))

    def change(self, path: str, offset: int, data: bytes) -> None:
        """Write `data` at an offset."""
        self._do("change", path=path, offset=offset, data=base64.b64encode(data).decode())

    def keep_secret(self, path: str, data: bytes) -> None:
        """Write a file that nobody else may read."""
        self._do("keep_secret", path=path, data=base64.b64encode(data).decode())

    def cut(self, path: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        self._do("cut", path=path, size=size)

    def keep(self, copy: str) -> None:
        """Copy the folder as it lies now."""
        self._do("keep", copy=copy)

    def put_back(self, copy: str | None, *, aside: str | None = None) -> None:
        """Replace what lies there by a copy, or by nothing; keep it as the copy `aside`."""
        self._do("put_back", copy=copy, aside=aside)

    def drop(self, copy: str) -> None:
        """Delete a copy."""
        self._do("drop", copy=copy)

    def digest(self, copy: str | None = None) -> str:
        """Return a hash over all names and contents."""
        return str(self._do("digest", copy=copy))


class RemoteDisk(RemoteFolder):
    """See `harness.site.Disk`: the folder lies on a small file system of its own."""

    def __init__(self, station: Station, node: str) -> None:
        super().__init__(station, node)
        self._limiting: set[str] = set()

    def fill(self, owner: str) -> None:
        """Leave no room."""
        self._limit("fill", owner)

    def forbid_writes(self, owner: str) -> None:
        """Make it read-only."""
        self._limit("forbid_writes", owner)

    def _limit(self, method: str, owner: str) -> None:
        self._do(method, owner=owner)
        self._limiting.add(owner)

    def make_whole(self, owner: str) -> None:
        """Give room and writing back."""
        self._do("make_whole", owner=owner)
        self._limiting.discard(owner)

    def limited(self) -> bool:
        """Whether any owner still limits the disk."""
        return bool(self._limiting)

    def free_bytes(self) -> int:
        """Return the room that is left."""
        return int(self._do("free_bytes"))

    def try_to_write(self) -> str:
        """Write a block; return "" or the error's name."""
        return str(self._do("try_to_write"))
