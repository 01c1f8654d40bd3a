"""PostgreSQL: what its rows, sessions, disk and error codes really do."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.target import Grant, RefusedError, Stored, proves_no_effect
from targets import _postgres_server as starter
from targets._no_effect import NotConnectedError
from targets._postgres_session import Session, SessionLostError, SqlError
from targets.postgres import Postgres
from tests.live import slay
from tests.support_servers import Servers, becomes, in_time, servers_of, until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One server for all tests that leave it as it was; each uses a key of its own."""
    yield from started(tmp_path_factory.mktemp("postgres"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Servers]:
    """A server for one test."""
    yield from started(tmp_path)


def started(folder: Path) -> Iterator[Servers]:
    with servers_of(Postgres(), folder) as servers:
        servers.start()
        yield servers


def lock_of(servers: Servers, **options: Any) -> Any:
    return closing(Postgres(**options).lock(servers.cluster, 5.0))


def store_of(servers: Servers, timeout_s: float = 5.0, **options: Any) -> Any:
    return closing(Postgres(**options).store(servers.cluster, timeout_s))


def raw(servers: Servers) -> Any:
    """A session for what no target does."""
    return closing(Session(servers.cluster.places[0], 5.0))


def read_only(servers: Servers) -> bool:
    """Whether a session that begins now may only read."""
    with raw(servers) as operator:
        return "on" in str(operator.ask("SHOW default_transaction_read_only"))


def processes(servers: Servers) -> list[int]:
    """The pids of the server and of all that it started: every session is one."""
    first = servers._processes["postgres1"].pid
    children = Path(f"/proc/{first}/task/{first}/children").read_text("ascii")
    return [first, *map(int, children.split())]


def kill(servers: Servers) -> None:
    """Kill -9 of everything at once, as a run does."""
    everything = processes(servers)
    slay(*everything)
    servers.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything), "all are gone")


# ------------------------------------------------------------------------------- the lock


@pytest.mark.real
def test_tokens_and_fence_survive_a_kill(own: Servers) -> None:
    with lock_of(own) as lock, store_of(own, fenced=True) as store:
        grant = lock.acquire("k", 30.0)
        lock.release(grant)
        newest = lock.acquire("k", 30.0).token
        assert newest > grant.token
        store.write("k", "new", newest)
        kill(own)
        with pytest.raises(NotConnectedError, match="refused"):
            store.write("k", "never", newest)
        own.start("postgres1")
        assert lock.acquire("other", 30.0).token > newest
        with pytest.raises(RefusedError, match=f"fenced: token {grant.token} is below {newest}"):
            store.write("k", "stale", grant.token)
        assert store.write("k", "newer", newest + 1) == Stored("new", newest)


@pytest.mark.real
def test_a_refused_acquire_draws_no_token(running: Servers) -> None:
    with lock_of(running) as lock, raw(running) as other:
        grant = lock.acquire("busy", 30.0)
        for _ in range(5):
            with pytest.raises(RefusedError, match="held"):
                lock.acquire("busy", 30.0)
        ((last,),) = other.ask("SELECT last_value FROM vanwinkle_token")
        assert int(last) == grant.token


@pytest.mark.real
def test_a_token_is_drawn_after_the_wait_for_the_row(running: Servers) -> None:
    """Whoever waits while another takes the lock and loses it again must get the higher token."""
    with lock_of(running) as lock, raw(running) as other, raw(running) as witness:
        old = lock.acquire("waited", 30.0)
        lock.release(old)
        other.ask("BEGIN")
        other.ask("SELECT token FROM vanwinkle_lock WHERE key = 'waited' FOR UPDATE")
        granted: list[Grant] = []
        waiter = threading.Thread(target=lambda: granted.append(lock.acquire("waited", 30.0)))
        waiter.start()
        waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: bool(witness.ask(waiting)), "the acquire waits for the row")
        ((between,),) = other.ask(
            "UPDATE vanwinkle_lock SET token = nextval('vanwinkle_token')"
            " WHERE key = 'waited' RETURNING token"
        )
        other.ask("COMMIT")
        waiter.join(10)
        token = granted[0].token
        assert token is not None
        assert token > int(between)


@pytest.mark.real
def test_a_terminated_session_gives_its_lock_away_and_tells_nobody(running: Servers) -> None:
    with (
        lock_of(running, lock="advisory") as first,
        lock_of(running, lock="advisory") as second,
        raw(running) as operator,
    ):
        grant = first.acquire("led", 30.0)
        operator.ask("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        new: list[Grant] = []

        def taken() -> bool:
            try:
                new.append(second.acquire("led", 30.0))
            except RefusedError:
                return False
            return True

        until(taken, "the lock is free")
        assert new[0].token > grant.token
        assert first.believes(grant)
        for call in (first.renew, first.release):
            with pytest.raises(RefusedError, match="not-holder: the session has ended"):
                call(grant)
        assert not first.believes(grant)
        second.renew(new[0])
        second.release(new[0])


@pytest.mark.real
def test_two_advisory_locks_of_one_client_are_two_sessions(running: Servers) -> None:
    with lock_of(running, lock="advisory") as lock, lock_of(running, lock="advisory") as other:
        one, two = lock.acquire("one", 30.0), lock.acquire("two", 30.0)
        lock.release(one)
        other.release(other.acquire("one", 30.0))
        with pytest.raises(RefusedError, match="held"):
            other.acquire("two", 30.0)
        lock.renew(two)


# -------------------------------------------------------------------------------- the store


@pytest.mark.real
def test_tokens_are_compared_as_numbers_up_to_63_bits(running: Servers) -> None:
    with store_of(running, fenced=True) as store:
        for token in (9, 10, 2**63 - 1):
            store.write("big", "v", token)
        with pytest.raises(RefusedError, match=str(2**63 - 1)):
            store.write("big", "v", 2**63 - 2)


@pytest.mark.real
def test_text_that_somebody_else_stored_is_read_as_text(running: Servers) -> None:
    with store_of(running) as store, raw(running) as other:
        other.ask("INSERT INTO vanwinkle_data (key, value) VALUES ('foreign', '<b>')")
        assert store.read("foreign") == Stored("<b>")
        assert store.write("foreign", "v", 1) == Stored("<b>")


@pytest.mark.real
def test_a_frozen_session_leaves_the_outcome_unknown_and_no_answer_behind(own: Servers) -> None:
    target: Any = own.target
    with store_of(own, 0.5) as store, store_of(own) as witness:
        in_time(lambda: store.write("k", "before", 1))
        stopped = processes(own)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert "no session within" in str(target.ready(own.cluster))
        with pytest.raises(SessionLostError, match="no answer") as late:
            store.write("k", "unknown", 2)
        assert proves_no_effect(own.target, late.value) is None
        with pytest.raises(NotConnectedError, match="no session") as none:
            store.write("k", "never", 3)
        assert proves_no_effect(own.target, none.value) is not None
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        until(lambda: witness.read("k") == Stored("unknown", 2), "the late write takes effect")
        assert in_time(lambda: store.read("other")) is None  # and not the late answer to the write


# ------------------------------------------------------------------------------- the errors


@pytest.mark.real
def test_errors_of_a_statement_are_proven_to_have_had_no_effect(own: Servers) -> None:
    with store_of(own) as store, raw(own) as operator:
        with pytest.raises(SqlError, match="22003") as beyond:
            store.write("k", "v", 2**63)
        assert proves_no_effect(own.target, beyond.value) is not None
        store.write("k", "v", 1)
        operator.ask("ALTER SYSTEM SET default_transaction_read_only = on")
        operator.ask("SELECT pg_reload_conf()")
    until(lambda: read_only(own), "new sessions may only read")
    with store_of(own) as store, lock_of(own) as lock:
        for call, args in ((store.write, ("k", "w", 2)), (lock.acquire, ("k", 30.0))):
            with pytest.raises(SqlError, match="25006") as rejected:
                call(*args)
            assert proves_no_effect(own.target, rejected.value) is not None
        assert store.read("k") == Stored("v", 1)


@pytest.mark.parametrize(
    ("state", "severity", "proven"),
    [
        ("22003", "ERROR", True),
        ("40001", "ERROR", True),
        ("40003", "ERROR", False),  # statement completion unknown
        ("53100", "ERROR", True),  # the disk is full
        ("53100", "PANIC", False),
        ("57014", "ERROR", True),
        ("57P01", "FATAL", False),
        ("08006", "ERROR", False),
        ("58030", "ERROR", False),  # an error of the disk: was the commit written?
        ("XX000", "ERROR", False),
    ],
)
def test_which_error_codes_prove_that_nothing_happened(
    state: str, severity: str, proven: bool
) -> None:
    rule = proves_no_effect(Postgres(), SqlError(state, severity, "text"))
    assert (rule is not None) is proven


@pytest.mark.real
def test_an_error_of_the_commit_comes_after_the_rows_and_counts(running: Servers) -> None:
    with raw(running) as session:
        session.ask("CREATE TABLE late (key int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(SqlError, match="23505"):
            session.ask("INSERT INTO late VALUES (1), (1) RETURNING key")
        assert session.ask("SELECT key FROM late") == []


# ------------------------------------------------------------------------------ the server


@pytest.mark.real
def test_ready_says_what_is_missing(
    running: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target: Any = running.target
    place = running.cluster.places[0]
    becomes(lambda: target.ready(running.cluster), None)
    becomes(lambda: target.answers(place), None)
    monkeypatch.setattr("targets.postgres.OLDEST", 990000)
    assert "990000 is needed" in target.ready(running.cluster)
    nobody = Servers(Postgres(), tmp_path).cluster
    assert "refused" in target.ready(nobody)
    assert "refused" in target.answers(nobody.places[0])
    assert target.server_time(nobody.places[0]) is None
    assert target.version().startswith("postgres (PostgreSQL) ")


@pytest.mark.real
def test_the_server_is_started_as_a_user_that_it_accepts(running: Servers) -> None:
    with raw(running) as session:
        assert session.ask("SHOW unix_socket_directories") == [("",)]
    status = Path(f"/proc/{processes(running)[0]}/status").read_text("ascii")
    inside = [line.split()[1] for line in status.splitlines() if line.startswith("Uid:")]
    assert inside == [str(os.getuid())]  # the files are the caller's


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_data_folder_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    find = 'for a in "$@"; do case $a in --pgdata=*) d=${a#*=};; esac; done; mkdir $d;'
    fails = script(tmp_path / "fails", f"{find} echo half > $d/half; exit 3")
    works = script(tmp_path / "works", f"{find} echo 18 > $d/PG_VERSION")
    server = script(tmp_path / "server", 'id -u; echo "$@"')

    def start(initdb: str) -> "subprocess.CompletedProcess[str]":
        what = [starter.__file__, initdb, server, str(folder), "-c", "x"]
        argv = [sys.executable, "-I", "-S", *what]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert start(fails).returncode != 0
    assert not folder.exists()
    done = start(works)
    assert done.stdout.split("\n")[1] == f"-D {folder} -c x", done.stderr
    assert done.stdout.split("\n")[0] == str(os.getuid() or 65534)
    assert sorted(path.name for path in folder.iterdir()) == ["PG_VERSION", "pg_hba.conf"]
    assert start(fails).stdout == done.stdout  # what is there is not made again
