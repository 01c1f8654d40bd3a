"""Released versions of products, built once and kept in the user's cache, one beside the other.

A claim about one release is worth little until its neighbour was put to the same test.  Products
that are Go modules need no package and no image for that: the module proxy serves every release,
and the tool chain builds it into one static file.  `$XDG_CACHE_HOME/vanwinkle/released/etcd/3.7.1`
holds the program and a record of it; a folder of that name appears whole or not at all, and a
program whose checksum is not the recorded one counts as absent.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from harness.errors import HarnessError, UsageError

RECORD = "built.json"
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9a-z.]+)?\Z")


@dataclass(frozen=True)
class Releases:
    """How the releases of one product are built.

    `says` is the first line of `command --version`, with `{version}` in it.  `module` returns the
    Go module of a version, as `go get` takes it, whose root is the program; it raises UsageError
    for a version that cannot be built.
    """

    product: str
    command: str
    says: str
    module: Callable[[str], str]


@runtime_checkable
class HasReleases(Protocol):
    """Ability of a target's factory: its product can be had in every released version."""

    releases: Releases


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded beside a program; `built` is UTC in ISO 8601, `go` the tool chain."""

    product: str
    version: str
    command: str
    module: str
    sha256: str
    size: int
    says: str
    go: str
    built: str


def cache_home() -> Path:
    """Return `$XDG_CACHE_HOME`, or where it is when nothing is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def released_folder() -> Path:
    """Return where released versions are kept: `$XDG_CACHE_HOME/vanwinkle/released`."""
    return cache_home() / "vanwinkle" / "released"


def place(product: str, version: str) -> Path:
    """Return the folder of one version.  Raises UsageError for what is no version."""
    if not _VERSION.match(version):
        raise UsageError(f"{version!r} is no version of {product}: write it like 3.7.1")
    return released_folder() / product / version


def binary(product: str, version: str) -> Path | None:
    """Return the program of a released version, None while it is not in the cache.

    Its checksum is looked at, once a process.  Raises UsageError for what is no version.
    """
    folder = place(product, version)
    record = read_record(folder)
    if record is None:
        return None
    path = folder / record.command
    return path if is_whole(path, record) else None


def needed(product: str, version: str) -> Path:
    """Return the program of a released version.  Raises UsageError with the command to get it."""
    found = binary(product, version)
    if found is None:
        raise UsageError(
            f"{product} {version} is not in {released_folder()};"
            f" build it with: winkle get {product}@{version}"
        )
    return found


def read_record(folder: Path) -> Built | None:
    """Return the record of a folder, None where there is none that can be read."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Built)
    except (OSError, msgspec.DecodeError):
        return None


def is_whole(path: Path, record: Built) -> bool:
    """Whether a program is there and is the one that was built."""
    try:
        seen = path.stat()
        if seen.st_size != record.size or not os.access(path, os.X_OK):
            return False
        return checksum(path, seen.st_mtime_ns) == record.sha256
    except OSError:
        return False


@lru_cache
def checksum(path: Path, mtime_ns: int) -> str:  # noqa: ARG001 - a part of the cache's key
    """Return the SHA-256 of a file as it was at `mtime_ns`.  Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listed() -> list[tuple[Built, bool]]:
    """Return what is in the cache, by product and version, and whether each is whole."""
    found = [
        (record, is_whole(folder / record.command, record))
        for folder in released_folder().glob("[!.]*/*")
        if (record := read_record(folder)) is not None
    ]
    return sorted(found, key=lambda one: (one[0].product, _order(one[0].version)))


def _order(version: str) -> tuple[list[int], bool, str]:
    numbers, dash, rest = version.partition("-")
    return [int(number) for number in numbers.split(".")], not dash, rest


def first_line(argv: list[str]) -> str:
    """Return the first line that a program prints, for its version.  Raises HarnessError."""
    try:
        done = subprocess.run(argv, capture_output=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise HarnessError(f"{argv[0]} does not tell its version: {error}") from error
    return done.stdout.decode(errors="backslashreplace").partition("\n")[0].strip()
