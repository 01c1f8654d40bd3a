"""A small disk for every node: a tmpfs that is mounted inside the sandbox and dies with it.

The file system's root holds the data folder, a folder of copies beside it, and one page that is
always used, because tmpfs takes a size of 0 for no limit.  A full disk is a disk whose size is what
is used: pages that a file has already go on taking writes, as on any file system.  The kernel makes
nothing read-only while a file on it is open for writing.  What was not synced is not lost here: the
page cache is the disk.  Limits are for what runs on the node: copies and damage, made while nothing
does, are not bound by them.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.local import namespaces as ns

_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_FLAGS = ns.MS_NOSUID | ns.MS_NODEV
_SIZE = "50%"
_TRIES = 100
_PROBE = """
import os, sys
try:
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, bytes(4096))
except OSError as error:
    sys.exit(error.errno)
finally:
    try:
        os.unlink(sys.argv[1])
    except OSError:
        pass
"""


class Folder:
    """A data folder `data`, and copies of it beside it, below `root`."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self._copies = root / "copies"
        self.data.mkdir(parents=True)
        self._copies.mkdir()

    def files(self) -> Mapping[str, int]:
        """Return the regular files with their sizes in bytes."""
        return {
            name: path.stat().st_size
            for name, path in _entries(self.data)
            if path.is_file() and not path.is_symlink()
        }

    def read(self, path: str) -> bytes:
        """Return what a file holds."""
        return (self.data / path).read_bytes()

    def change(self, path: str, offset: int, data: bytes) -> None:
        """Write `data` at an offset."""
        with (self.data / path).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def keep_secret(self, path: str, data: bytes) -> None:
        """Write a file, in a folder that may have to be made, which nobody else may read."""
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
            file.write(data)

    def cut(self, path: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        os.truncate(self.data / path, size)

    def keep(self, copy: str) -> None:
        """Copy the folder as it lies now."""
        self.drop(copy)
        shutil.copytree(self.data, self._copies / copy, symlinks=True)

    def put_back(self, copy: str | None, *, aside: str | None = None) -> None:
        """Replace what lies there by a copy, or by nothing; keep it as the copy `aside`."""
        if aside is None:
            shutil.rmtree(self.data)
        else:
            self.drop(aside)
            self.data.rename(self._copies / aside)
        if copy is None:
            self.data.mkdir()
        else:
            shutil.copytree(self._copies / copy, self.data, symlinks=True)

    def drop(self, copy: str) -> None:
        """Delete a copy."""
        shutil.rmtree(self._copies / copy, ignore_errors=True)

    def digest(self, copy: str | None = None) -> str:
        """Return a SHA-256 over all names and contents."""
        total = hashlib.sha256()
        for name, path in _entries(self.data if copy is None else self._copies / copy):
            regular = path.is_file() and not path.is_symlink()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if regular else ""
            total.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()


class OwnDisk(Folder):
    """The disk of one node: its size and mode, and what lies in its data folder."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True)
        ns.mount("tmpfs", str(root), "tmpfs", _FLAGS, f"size={_SIZE},mode=755")
        super().__init__(root)
        (root / "page").write_bytes(bytes(4096))
        self._root = root
        self._full: set[str] = set()
        self._read_only: set[str] = set()
        self._lifted = False

    def fill(self, owner: str) -> None:
        """Make the size what is used.  Raises OSError when it never keeps still."""
        self._order(self._full, owner)

    def forbid_writes(self, owner: str) -> None:
        """Make it read-only.  Raises OSError (EBUSY) while a file is open for writing."""
        self._order(self._read_only, owner)

    def make_whole(self, owner: str) -> None:
        """Take back what an owner ordered."""
        self._full.discard(owner)
        self._read_only.discard(owner)
        self._remount()

    def limited(self) -> bool:
        """Whether any owner still limits the disk."""
        return bool(self._full or self._read_only)

    def free_bytes(self) -> int:
        """Return the room that is left."""
        state = os.statvfs(self._root)
        return state.f_bfree * state.f_frsize

    def try_to_write(self) -> str:
        """Write a block in a process of its own; return "" or the error's name."""
        argv = [sys.executable, "-I", "-S", "-c", _PROBE, str(self._root / "probe")]
        code = subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode
        return errno.errorcode.get(code, str(code)) if code else ""

    def change(self, path: str, offset: int, data: bytes) -> None:
        """Write `data` at an offset."""
        with self._unlimited():
            super().change(path, offset, data)

    def cut(self, path: str, size: int) -> None:
        """Cut a file off at `size` bytes."""
        with self._unlimited():
            super().cut(path, size)

    def keep(self, copy: str) -> None:
        """Copy the folder as it lies now."""
        with self._unlimited():
            super().keep(copy)

    def put_back(self, copy: str | None, *, aside: str | None = None) -> None:
        """Replace what lies there by a copy, or by nothing; keep it as the copy `aside`."""
        with self._unlimited():
            super().put_back(copy, aside=aside)

    def drop(self, copy: str) -> None:
        """Delete a copy."""
        with self._unlimited():
            super().drop(copy)

    @contextlib.contextmanager
    def _unlimited(self) -> Iterator[None]:
        """Lift all limits for a moment; `drop` comes within `keep` and `put_back`."""
        if self._lifted or not self.limited():
            yield
            return
        self._lifted = True
        try:
            self._remount()
            yield
        finally:
            self._lifted = False
            self._remount()

    def _order(self, owners: set[str], owner: str) -> None:
        owners.add(owner)
        try:
            self._remount()
        except OSError:
            owners.discard(owner)
            raise

    def _remount(self) -> None:
        """Apply size and mode at once; somebody may write between the look and the order."""
        read_only = self._read_only and not self._lifted
        full = self._full and not self._lifted
        flags = _FLAGS | ns.MS_REMOUNT | (ns.MS_RDONLY if read_only else 0)
        for last in range(_TRIES, 0, -1):
            size = str(self._used_bytes()) if full else _SIZE
            try:
                ns.mount("tmpfs", str(self._root), None, flags, f"size={size}")
            except OSError as error:
                if error.errno != errno.EINVAL or last == 1:
                    raise
            else:
                return

    def _used_bytes(self) -> int:
        state = os.statvfs(self._root)
        return (state.f_blocks - state.f_bfree) * state.f_frsize


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield all that lies below a folder, by relative path, in one order everywhere."""
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder)), path
