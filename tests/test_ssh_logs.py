"""The log of a resource whose data folder lies on a host: the copy, and what is no copy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from harness.errors import TargetError
from harness.ssh.folder import RemoteFolder
from harness.ssh.logs import copied, with_log
from harness.target import Cluster, Place, Target
from targets.atlasmart.journal import JOURNAL
from targets.atlasmart.target import Atlasmart

PLACE = Place("store1", "192.0.2.1", 7202, "store", "/on/the/host")
LINE = b'{"key":"k","value":"w1-0","token":1,"accepted":true}\n'


class Folder(RemoteFolder):
    """A data folder as an agent tells of it."""

    def __init__(self, **held: bytes) -> None:
        self._held = held

    def files(self) -> Mapping[str, int]:
        return {name: len(data) for name, data in self._held.items()}

    def read(self, path: str) -> bytes:
        return self._held[path]


def test_a_target_reads_the_log_from_a_copy() -> None:
    nodes = {"store1": Folder(**{JOURNAL: LINE, "deep/er": b"x"})}
    store = Atlasmart()
    seen: Any = with_log(store, store, nodes)
    (line,) = seen.store_log(Cluster([PLACE]))
    assert (line.value, line.accepted) == ("w1-0", True)
    assert list(store.store_log(Cluster([PLACE]))) == [], "there is none on this side"


def test_a_target_without_a_log_stays_as_it_is() -> None:
    target = cast(Target, object())
    assert with_log(target, target, {}) is target


@pytest.mark.parametrize("name", ["../other/x", "/etc/passwd", "a/../../x"])
def test_nothing_is_written_outside_of_the_copy(name: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"outside of it"):
        copied(PLACE, Folder(**{name: b"x"}), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
