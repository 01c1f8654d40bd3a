"""Users and roles of an etcd cluster, set up through its JSON gateway.

With authentication on, a request bears a token that names a user, and a user may do what his roles
say about ranges of keys.  `worker` may do anything below `vanwinkle/`, except with what is a
stranger's; `stranger` may read and write below `stranger/` alone.  The passwords are no secrets:
the servers listen on addresses that end with the run.
"""

import base64
import http.client
import json
from typing import Any

from harness.target import Place

CALL_TIMEOUT_S = 1.0
WORKER_RANGE = (b"vanwinkle/", b"vanwinkle0")  # the byte after the slash
STRANGER_RANGE = (b"stranger/", b"stranger0")
_RANGES = {"worker": WORKER_RANGE, "stranger": STRANGER_RANGE}


def enable(place: Place) -> str | None:
    """Make users and roles and turn authentication on; return what is missing, None when it is on.

    What is there already is left alone, so it may be called again.
    """
    if root_token(place) is not None:
        return None
    steps: list[tuple[str, dict[str, Any]]] = [
        ("auth/user/add", {"name": "root", "password": "root"}),
        ("auth/role/add", {"name": "root"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
    ]
    for name, (key, end) in _RANGES.items():
        span = {"permType": "READWRITE", "key": _b64(key), "range_end": _b64(end)}
        steps += [
            ("auth/user/add", {"name": name, "password": name}),
            ("auth/role/add", {"name": name}),
            ("auth/role/grant", {"name": name, "perm": span}),
            ("auth/user/grant", {"user": name, "role": name}),
        ]
    for path, body in [*steps, ("auth/enable", {})]:
        answer = ask(place, path, body)
        said = str(answer.get("error", answer.get("message", "")))
        if "header" not in answer and "already" not in said:
            return f"{path}: {said or 'no answer'}"
    return None


def root_token(place: Place) -> str | None:
    """Return a token of the user that may do anything, None without authentication."""
    token = ask(place, "auth/authenticate", {"name": "root", "password": "root"}).get("token")
    return None if token is None else str(token)


def ask(place: Place, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Ask a member over its JSON gateway; no proper answer is {}."""
    connection = http.client.HTTPConnection(place.address, place.port, timeout=CALL_TIMEOUT_S)
    try:
        connection.request("POST", f"/v3/{path}", body=json.dumps(body or {}))
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
