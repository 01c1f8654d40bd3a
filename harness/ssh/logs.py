"""A resource's own log, where its data folder lies on a host.

A target reads the files of its servers on the harness's side.  Those of hosts are copied there for
as long as it reads; without them the log would look as if the resource had never accepted anything.
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.asking import view
from harness.errors import TargetError
from harness.ssh.folder import RemoteFolder
from harness.target import Accept, Cluster, Place, StoreLog, Target


def with_log(target: Target, asked: Target, nodes: Mapping[str, object]) -> Target:
    """Return `asked` with the log that `target` reads from copies of its servers' folders."""
    if not isinstance(target, StoreLog):
        return asked
    reader = target

    def read(_call: str, cluster: Cluster) -> Sequence[Accept]:
        with tempfile.TemporaryDirectory(prefix="winkle-") as folder:
            places = [copied(place, nodes[place.name], Path(folder)) for place in cluster.places]
            return list(reader.store_log(Cluster(places)))

    return view(asked, read, ("store_log",))


def copied(place: Place, node: object, into: Path) -> Place:
    """Copy the data folder of a server; return the place that has the copy.

    Raises OSError, and TargetError for a file that would lie elsewhere.
    """
    assert isinstance(node, RemoteFolder), "made by harness.ssh.node"
    here = into / place.name
    here.mkdir()
    for name in node.files():
        path = (here / name).resolve()
        if not path.is_relative_to(here.resolve()):
            raise TargetError(f"the data folder of {place.name} has a file {name!r} outside of it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(node.read(name))
    return dataclasses.replace(place, data=str(here))
