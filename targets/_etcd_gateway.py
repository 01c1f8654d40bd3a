"""The JSON gateway of an etcd member: every call of its API as one HTTP request.

It is what probes and set-up use, which need no gRPC then.  A member that gives no proper answer is
one that gives none.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.target import Place
from targets._etcd_access import Tls

PROBE_S = 0.5
CALL_S = 2.0


@dataclass(frozen=True)
class Gateway:
    """The gateways of a cluster's members."""

    tls: Tls | None = None

    @property
    def scheme(self) -> str:
        """How the members' addresses begin."""
        return "http" if self.tls is None else "https"

    def call(
        self,
        place: Place,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        timeout_s: float = CALL_S,
    ) -> dict[str, Any]:
        """Call `/v3/PATH`; no proper answer is {}."""
        headers = {} if token is None else {"Authorization": token}
        return self._asked(place, "POST", f"/v3/{path}", json.dumps(body or {}), headers, timeout_s)

    def health(self, place: Place) -> dict[str, Any]:
        """Ask how a member is; no proper answer is {}."""
        return self._asked(place, "GET", "/health", None, {}, PROBE_S)

    def date(self, place: Place) -> str | None:
        """Return the date that a member writes on its answers, None without one."""
        try:
            with self._connected(place, PROBE_S) as door:
                connection = _over(door, place)
                connection.request("GET", "/version")
                return connection.getresponse().headers["Date"]
        except (OSError, http.client.HTTPException):
            return None

    def _asked(
        self,
        place: Place,
        method: str,
        path: str,
        body: str | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> dict[str, Any]:
        try:
            with self._connected(place, timeout_s) as door:
                connection = _over(door, place)
                connection.request(method, path, body, headers)
                answer = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        return answer if isinstance(answer, dict) else {}

    def _connected(self, place: Place, timeout_s: float) -> socket.socket:
        """Return a connection; with TLS, to a member that has shown a certificate of the name."""
        plain = socket.create_connection((place.address, place.port), timeout_s)
        if self.tls is None:
            return plain
        with plain:  # the wrapper takes the socket over; one that fails must leave nothing open
            return self.tls.context.wrap_socket(plain, server_hostname=self.tls.name)


def _over(door: socket.socket, place: Place) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(place.address, place.port)
    connection.sock = door
    return connection
