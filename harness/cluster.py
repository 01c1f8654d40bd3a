"""From the servers that a target asks for to the places where they run, and back from JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harness.target import Cluster, Place, Server


def places(servers: Sequence[Server], nodes: Mapping[str, Any]) -> Cluster:
    """Return where each server runs, given its node by name."""
    return Cluster(
        [
            Place(s.name, nodes[s.name].address, s.port, s.role, str(nodes[s.name].data))
            for s in servers
        ]
    )


def command(server: Server, cluster: Cluster) -> tuple[list[str], dict[str, str]]:
    """Return argv and environment of a server with its placeholders filled in.

    Raises ValueError that names a placeholder which does not exist.
    """
    place = cluster[server.name]
    peers = {other.name: other.address for other in cluster.places}
    known = {
        "address": place.address,
        "data": place.data,
        "secrets": place.secrets,
        "name": place.name,
        "peer": peers,
    }
    try:
        argv = [part.format(**known) for part in server.argv]
        return argv, {key: text.format(**known) for key, text in server.env.items()}
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"no placeholder {error} (there are address, data, secrets, name, peer[NAME])"
        ) from error


def cluster_of(records: Iterable[Mapping[str, Any]]) -> Cluster:
    """Return the cluster that a `hello` describes."""
    return Cluster([msgspec.convert(dict(record), Place) for record in records])


def records_of(cluster: Cluster) -> list[Mapping[str, Any]]:
    """Return a cluster as a `hello` carries it."""
    return [msgspec.to_builtins(place) for place in cluster.places]
