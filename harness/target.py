"""What a system under test must tell the harness.

The required part is tiny: a name, the servers to start, and a client for the role that it plays
(lock service, store, or both).  Everything else is an ability in a protocol of its own; a fault or
a workload asks for it and says what is missing.

Clients are blocking objects that live inside a worker process, one per thread that needs one.  A
client must not retry by itself: a retry turns one's own success into a refusal and hides double
execution.  An operation ends in one of three ways: it returns (ok), it raises `RefusedError` (the
system said no, and proves that nothing happened), or it raises anything else, which the target's
error table turns into `fail` (proven to have had no effect) or `info` (nobody knows; the default).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


class RefusedError(Exception):
    """The system answered no, and the operation certainly had no effect.

    `code` is one word: `held` (somebody has the lock), `not-holder` (the caller does not hold it),
    `fenced` (the resource has seen a higher token), `denied` (the caller lacks the permission).
    """

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code


@dataclass(frozen=True)
class Grant:
    """A lock that was granted.

    `token` is the fencing token, None where the service has none; `ttl_s` the lease that the
    service really gave; `handle` whatever the client needs to renew and release (never leaves the
    worker).
    """

    key: str
    token: int | None
    ttl_s: float
    handle: Any = None


@dataclass(frozen=True)
class Stored:
    """What a read of the resource returned: the value, and the token of the write behind it."""

    value: Any
    token: int | None = None


class LockClient(Protocol):
    """A lease lock.  `acquire` tries once and does not wait."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held")."""
        ...

    def renew(self, grant: Grant) -> None:
        """Extend the lease by its full TTL or raise RefusedError("not-holder")."""
        ...

    def release(self, grant: Grant) -> None:
        """Give the lock back or raise RefusedError("not-holder")."""
        ...

    def close(self) -> None:
        """Drop connections; never raises."""
        ...


@runtime_checkable
class LeaseCheck(Protocol):
    """Ability of a lock client: ask the service whether the grant is still the current one."""

    def check(self, grant: Grant) -> bool:
        """Return whether the service says that this grant holds the lock now."""
        ...


@dataclass(frozen=True)
class Queued:
    """A place in the queue for a lock.

    `grant` is what it will be granted as; its token may be known only then.  `waiting`: somebody is
    before it.
    """

    grant: Grant
    waiting: bool


@runtime_checkable
class QueueClient(Protocol):
    """Ability of a lock client: queue for a lock in the service.

    While it waits, the worker keeps the lease of the place alive by `renew(place.grant)`, with a
    client of its own.
    """

    def queue(self, key: str, ttl_s: float) -> Queued:
        """Take a place, and return as soon as it is certain that the service has it."""
        ...

    def wait(self, place: Queued, wait_s: float) -> Grant:
        """Wait for the lock, at most `wait_s`.

        Raises RefusedError("not-holder") when the service says that the place was lost.  Whoever
        gives up gives back the place and raises something else: it may have been granted meanwhile.
        """
        ...


@runtime_checkable
class Queueing(Protocol):
    """Ability of a lock service: its clients can queue, with the options that it was made with."""

    queues: bool


@runtime_checkable
class Believes(Protocol):
    """Ability of a lock client: say itself whether its user takes the lock for held.

    Without it a worker ends its own hold when the lease has run out by its clock, or when a renewal
    is refused.  A library with a flag or a session of its own (`is_acquired`, `is_leader`) tells
    more, or less: what it says is then what the worker believes.
    """

    def believes(self, grant: Grant) -> bool:
        """Return what the library says now, without asking the service; called from any thread."""
        ...


class StoreClient(Protocol):
    """The protected resource: a register per key."""

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        ...

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write, or raise RefusedError("fenced" | "not-holder").

        Where the system tells in the same atomic step what was overwritten, return it, else None.
        """
        ...

    def close(self) -> None:
        """Drop connections; never raises."""
        ...


class StrangerClient(Protocol):
    """A client with credentials of its own, and no permission for what the workers have.

    `read`, `write` and `watch` try every way that the system has, and raise RefusedError("denied")
    when each was refused.
    """

    def own(self, value: str) -> None:
        """Do what it may do: without it the refusals would prove nothing."""
        ...

    def read(self, key: str) -> Sequence[Any]:
        """Return the values that it was shown."""
        ...

    def write(self, key: str, value: str) -> Sequence[str]:
        """Return the ways in which it was let write."""
        ...

    def watch(self, key: str, for_s: float) -> Sequence[Any]:
        """Return the values of the events that came while it watched for `for_s`, each way."""
        ...

    def close(self) -> None:
        """Drop connections; never raises."""
        ...


@dataclass(frozen=True)
class Server:
    """One server process; argv and env may name `{address}`, `{data}`, `{name}`, `{peer[NAME]}`.

    `{data}` is an empty folder of its own, `{secrets}` one with its files of `Secrets`.  `port` is
    where it answers: start-up waits for a TCP connection to it, and then for the target's `ready`.
    `role` groups servers (`lock`, `store`).  With `image`, which only containers can have, argv is
    what the own entrypoint of that image is given, or runs when there is none.
    """

    name: str
    argv: Sequence[str]
    port: int
    role: str = "lock"
    env: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a server runs: its address, its port, and its data folder (on the harness's side)."""

    name: str
    address: str
    port: int
    role: str
    data: str

    @property
    def endpoint(self) -> str:
        """`address:port`."""
        return f"{self.address}:{self.port}"

    @property
    def secrets(self) -> str:
        """The folder with its secret files: beside its data, so that no copy of those has them."""
        return f"{self.data}.secrets"


@dataclass(frozen=True)
class Cluster:
    """All servers of one target in one run."""

    places: Sequence[Place]

    def __getitem__(self, name: str) -> Place:
        for place in self.places:
            if place.name == name:
                return place
        raise KeyError(name)

    def role(self, role: str) -> list[Place]:
        """The places of the servers that play `role`."""
        return [place for place in self.places if place.role == role]


@runtime_checkable
class Target(Protocol):
    """The system under test; a factory makes it from options: `factory(**options) -> Target`."""

    name: str

    def servers(self) -> Sequence[Server]:
        """The servers to start, in order; may be empty."""
        ...


@runtime_checkable
class LockService(Protocol):
    """Ability: be the lock service of a run."""

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a client whose every call ends within about `timeout_s`."""
        ...


@runtime_checkable
class Forgeable(Protocol):
    """Ability of a lock service: a grant can be made up from key and token.

    `by_token` names the operations for which that is enough, with no `handle`: `renew`, `release`.
    """

    by_token: Collection[str]


@runtime_checkable
class Store(Protocol):
    """Ability: be the protected resource of a run.

    `fence` says what the resource itself does with tokens, for the report: `none` (takes every
    write), `checked` (refuses a token lower than the highest it has seen) or `guarded` (accepts
    only while the lock service itself says that the token is current).
    """

    fence: str

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a client whose every call ends within about `timeout_s`."""
        ...


@runtime_checkable
class HasStrangers(Protocol):
    """Ability of a store: have users, one of whom has no permission for the workers' keys."""

    has_strangers: bool

    def stranger(self, cluster: Cluster, timeout_s: float) -> StrangerClient:
        """Make a client of that user; what it tries ends within about `timeout_s` each."""
        ...


@runtime_checkable
class Ready(Protocol):
    """Ability: know when the cluster can serve, beyond its ports being open."""

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when it can serve, else what is missing; called again until then."""
        ...


@runtime_checkable
class Answers(Protocol):
    """Ability: know whether one server serves, beyond its port being open."""

    def answers(self, place: Place) -> str | None:
        """Return None when it does, else what is missing; asks this server alone, no majority."""
        ...


@dataclass(frozen=True)
class Secrets:
    """What the processes of one run may know, and nobody else: it is recorded nowhere.

    `known` is told to every process that makes clients; `files`, by the name of a server and that
    of a file, lie where its `{secrets}` is, and nobody but their owner may read them.
    """

    known: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict, repr=False)


@runtime_checkable
class Secretive(Protocol):
    """Ability: have secrets, such as the keys of certificates that are made for one run."""

    def make_secrets(self, cluster: Cluster) -> Secrets | None:
        """Make them, once a run and before any server starts; None when there are none."""
        ...

    def know(self, cluster: Cluster, secrets: Mapping[str, str]) -> None:
        """Take what is `known`; called before any other call that needs the network."""
        ...


@runtime_checkable
class Membership(Protocol):
    """Ability: change which servers belong to the cluster, while it runs.

    Each change is agreed by the members that run; both methods return None, or what the cluster
    said against it, which may be different a second later.
    """

    def members(self, cluster: Cluster) -> Mapping[str, str]:
        """Return the members that a majority agrees on, name to identity; empty without answer."""
        ...

    def remove_member(self, cluster: Cluster, name: str) -> str | None:
        """Take the member of that name out."""
        ...

    def add_member(self, cluster: Cluster, name: str) -> str | None:
        """Announce a member: the server of that name, or one that never comes if there is none."""
        ...

    def joining(self, name: str) -> Server:
        """Return how the server of an announced member is started, on an empty data folder."""
        ...


@dataclass(frozen=True)
class ServerTime:
    """The wall clock as a server itself read it: from `time_s` on, up to `grain_s` more."""

    time_s: float
    grain_s: float = 0.0


@runtime_checkable
class TellsTime(Protocol):
    """Ability: ask one server what time it has, as it reads its own wall clock."""

    def server_time(self, place: Place) -> ServerTime | None:
        """Return what it answers, in seconds since 1970; None when it does not, within 0.5 s."""
        ...


@runtime_checkable
class Leader(Protocol):
    """Ability: name the server that leads now."""

    def leader(self, cluster: Cluster) -> str | None:
        """Return the leader's server name, None while there is none; an error means the same.

        It is asked while servers are paused, cut off and killed, and again until one leads.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """Ability: name the version of what runs, for the record."""

    def version(self) -> str:
        """Return the version as the product itself says it."""
        ...


@dataclass(frozen=True)
class Accept:
    """One line of the resource's own log: what it accepted or refused, in its own order."""

    key: str
    value: Any
    token: int | None
    accepted: bool
    highest: int | None = None


@runtime_checkable
class StoreLog(Protocol):
    """Ability: hand over the resource's own log of accepts and refusals after the run."""

    def store_log(self, cluster: Cluster) -> Sequence[Accept]:
        """Return the log in the order in which the resource decided."""
        ...


@dataclass(frozen=True)
class ErrorRule:
    """One row of an error table: errors for which `matches` holds prove that nothing happened.

    `name` is what the error looks like to a person, `why` the proof that it had no effect.
    """

    name: str
    why: str
    matches: Callable[[BaseException], bool]


@runtime_checkable
class ErrorTable(Protocol):
    """Ability: know errors that prove that an operation had no effect.  All others are `info`."""

    errors: Sequence[ErrorRule]


def proves_no_effect(target: object, error: BaseException) -> ErrorRule | None:
    """Return the row of the error table that `error` matches, None for an unknown outcome."""
    if isinstance(error, RefusedError):
        return ErrorRule(error.code, "the system refused", lambda _: True)
    if isinstance(target, ErrorTable):
        for rule in target.errors:
            if rule.matches(error):
                return rule
    return None


def data_file(place: Place, name: str) -> Path:
    """Return the path of a file in a server's data folder."""
    return Path(place.data) / name
