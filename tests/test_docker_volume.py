"""A data volume that is filled while somebody else takes room as well."""

import errno
import os
from pathlib import Path

import pytest

from harness.docker.volume import Volume

BLOCK_BYTES = 4096


@pytest.mark.parametrize("left", [1, 2, 3, 5])
def test_the_last_block_is_taken_when_somebody_else_took_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """The file system said 6 blocks, but when they are asked for only `left` are there."""
    room = left

    def allocate(fd: int, offset: int, size: int) -> None:
        nonlocal room
        needed = -(-(offset + size) // BLOCK_BYTES) - -(-offset // BLOCK_BYTES)
        if needed > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= needed
        os.ftruncate(fd, offset + size)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    volume = Volume(tmp_path)
    monkeypatch.setattr(volume, "free_bytes", lambda: 6 * BLOCK_BYTES)
    volume.fill()
    assert room == 0
