"""The members of an etcd cluster: listed, removed and announced through the JSON gateway.

A member is known by its peer URL: an announced one has no name before it has started.  Each change
is one Raft entry.  With `strict-reconfig-check`, etcd's default, the members that remain must have
been connected to each other for five seconds, else etcd answers "unhealthy cluster"; so every
change may have to be asked for again.  A change that timed out may have happened all the same,
hence each begins with a look.
"""

from collections.abc import Mapping
from typing import Any

from harness.target import Cluster
from targets._etcd_gateway import Gateway

PEER_PORT = 2380
# A documentation address (RFC 5737): nobody has it, so a member there never comes.
_NOBODY = "192.0.2.1"


def members(gateway: Gateway, cluster: Cluster) -> Mapping[str, str]:
    """Return the members that a majority agrees on, name to identity; empty without answer."""
    names = {_peer_url(gateway, place.address): place.name for place in cluster.places}
    for place in cluster.places:
        answer = gateway.call(place, "cluster/member/list", {"linearizable": True})
        if "members" in answer:
            return {
                names.get(member["peerURLs"][0], member["peerURLs"][0]): member["ID"]
                for member in answer["members"]
            }
    return {}


def remove(gateway: Gateway, cluster: Cluster, name: str) -> str | None:
    """Take a member out; return None, or what was said against it."""
    known = members(gateway, cluster)
    if not known:
        return "no member of etcd lists the members"
    identity = known.get(_key(gateway, cluster, name))
    if identity is None:
        return None
    return _ask_for(gateway, cluster, name, "remove", {"ID": identity})


def add(gateway: Gateway, cluster: Cluster, name: str) -> str | None:
    """Announce the member of that name, or one that never comes; return what was said against."""
    known = members(gateway, cluster)
    if not known:
        return "no member of etcd lists the members"
    if _key(gateway, cluster, name) in known:
        return None
    urls = [_peer_url(gateway, _address(cluster, name))]
    return _ask_for(gateway, cluster, name, "add", {"peerURLs": urls})


def _key(gateway: Gateway, cluster: Cluster, name: str) -> str:
    """Return the name under which `members` lists a member."""
    known = any(place.name == name for place in cluster.places)
    return name if known else _peer_url(gateway, _NOBODY)


def _address(cluster: Cluster, name: str) -> str:
    return next((p.address for p in cluster.places if p.name == name), _NOBODY)


def _peer_url(gateway: Gateway, address: str) -> str:
    return f"{gateway.scheme}://{address}:{PEER_PORT}"


def _ask_for(
    gateway: Gateway, cluster: Cluster, name: str, change: str, body: dict[str, Any]
) -> str | None:
    """Ask the members one after the other, the one that it is about not at all."""
    said = "no other member of etcd answers"
    for place in cluster.places:
        if place.name == name:
            continue
        answer = gateway.call(place, f"cluster/member/{change}", body)
        if "members" in answer:
            return None
        said = str(answer.get("error", said))
    return said
