"""Users and roles of an etcd cluster, set up through its JSON gateway.

With authentication on, a request bears a token that names a user, and a user may do what his roles
say about ranges of keys.  `worker` may do anything below `vanwinkle/`, except with what is a
stranger's; `stranger` may read and write below `stranger/` alone.  The passwords are no secrets:
the servers listen on addresses that end with the run.
"""

import base64
from typing import Any

from harness.target import Place
from targets._etcd_access import User
from targets._etcd_gateway import Gateway

CALL_TIMEOUT_S = 1.0
ROOT, WORKER, STRANGER = (User(name, name) for name in ("root", "worker", "stranger"))
WORKER_RANGE = (b"vanwinkle/", b"vanwinkle0")  # the byte after the slash
STRANGER_RANGE = (b"stranger/", b"stranger0")
_RANGES = {"worker": WORKER_RANGE, "stranger": STRANGER_RANGE}


def enable(gateway: Gateway, place: Place) -> str | None:
    """Make users and roles and turn authentication on; return what is missing, None when it is on.

    What is there already is left alone, so it may be called again.
    """
    if token(gateway, place, ROOT) is not None:
        return None
    steps: list[tuple[str, dict[str, Any]]] = [
        ("auth/user/add", _new(ROOT)),
        ("auth/role/add", {"name": "root"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
    ]
    for name, (key, end) in _RANGES.items():
        span = {"permType": "READWRITE", "key": _b64(key), "range_end": _b64(end)}
        steps += [
            ("auth/user/add", _new(User(name, name))),
            ("auth/role/add", {"name": name}),
            ("auth/role/grant", {"name": name, "perm": span}),
            ("auth/user/grant", {"user": name, "role": name}),
        ]
    for path, body in [*steps, ("auth/enable", {})]:
        answer = gateway.call(place, path, body, timeout_s=CALL_TIMEOUT_S)
        said = str(answer.get("error", answer.get("message", "")))
        if "header" not in answer and "already" not in said:
            return f"{path}: {said or 'no answer'}"
    return None


def _new(user: User) -> dict[str, Any]:
    # Without options, even empty ones, 3.4.3 stores a user without the password and says nothing.
    return {"name": user.name, "password": user.password, "options": {}}


def token(gateway: Gateway, place: Place, user: User) -> str | None:
    """Return a token of a user, None without authentication or with a wrong password."""
    given = _logged_in(gateway, place, user).get("token")
    return None if given is None else str(given)


def refused(gateway: Gateway, place: Place, user: User) -> str | None:
    """Return why a member does not let a user in, None when it does, or says nothing."""
    said = _logged_in(gateway, place, user).get("message")
    return None if said is None else f"{place.name} does not let the user {user.name} in: {said}"


def _logged_in(gateway: Gateway, place: Place, user: User) -> dict[str, Any]:
    asked = {"name": user.name, "password": user.password}
    return gateway.call(place, "auth/authenticate", asked, timeout_s=CALL_TIMEOUT_S)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
