"""The members of an etcd cluster: listed, removed and announced through the JSON gateway.

A member is known by its peer URL: an announced one has no name before it has started.  Each change
is one Raft entry.  With `strict-reconfig-check`, etcd's default, the members that remain must have
been connected to each other for five seconds, else etcd answers "unhealthy cluster"; so every
change may have to be asked for again.  A change that timed out may have happened all the same,
hence each begins with a look.
"""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from harness.target import Cluster, Place

PEER_PORT = 2380
CALL_TIMEOUT_S = 2.0
# A documentation address (RFC 5737): nobody has it, so a member there never comes.
_NOBODY = "192.0.2.1"


def members(cluster: Cluster) -> Mapping[str, str]:
    """Return the members that a majority agrees on, name to identity; empty without answer."""
    names = {_peer_url(place.address): place.name for place in cluster.places}
    for place in cluster.places:
        answer = _call(place, "list", {"linearizable": True})
        if "members" in answer:
            return {
                names.get(member["peerURLs"][0], member["peerURLs"][0]): member["ID"]
                for member in answer["members"]
            }
    return {}


def remove(cluster: Cluster, name: str) -> str | None:
    """Take a member out; return None, or what was said against it."""
    known = members(cluster)
    if not known:
        return "no member of etcd lists the members"
    identity = known.get(_key(cluster, name))
    if identity is None:
        return None
    return _ask_for(cluster, name, "remove", {"ID": identity})


def add(cluster: Cluster, name: str) -> str | None:
    """Announce the member of that name, or one that never comes; return what was said against."""
    known = members(cluster)
    if not known:
        return "no member of etcd lists the members"
    if _key(cluster, name) in known:
        return None
    return _ask_for(cluster, name, "add", {"peerURLs": [_peer_url(_address(cluster, name))]})


def _key(cluster: Cluster, name: str) -> str:
    """Return the name under which `members` lists a member."""
    return name if any(place.name == name for place in cluster.places) else _peer_url(_NOBODY)


def _address(cluster: Cluster, name: str) -> str:
    return next((p.address for p in cluster.places if p.name == name), _NOBODY)


def _peer_url(address: str) -> str:
    return f"http://{address}:{PEER_PORT}"


def _ask_for(cluster: Cluster, name: str, change: str, body: dict[str, Any]) -> str | None:
    """Ask the members one after the other, the one that it is about not at all."""
    said = "no other member of etcd answers"
    for place in cluster.places:
        if place.name == name:
            continue
        answer = _call(place, change, body)
        if "members" in answer:
            return None
        said = str(answer.get("error", said))
    return said


def _call(place: Place, what: str, body: dict[str, Any]) -> dict[str, Any]:
    """Call the cluster service of one member; no proper answer is {}."""
    connection = http.client.HTTPConnection(place.address, place.port, timeout=CALL_TIMEOUT_S)
    try:
        connection.request("POST", f"/v3/cluster/member/{what}", body=json.dumps(body))
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}
