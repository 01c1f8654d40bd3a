"""The clients of PostgreSQL: a lease in a row, a lock of a session, a register in a row."""

from collections.abc import Callable
from typing import Any

import msgspec
import psycopg  # noqa: F401 - loaded with the client, and not during its first lease

from harness.target import Grant, Place, RefusedError, Stored
from targets._postgres_session import Session, SessionLostError, SqlError

SCHEMA = (
    "CREATE SEQUENCE IF NOT EXISTS vanwinkle_token",
    """CREATE TABLE IF NOT EXISTS vanwinkle_lock (
    key text PRIMARY KEY, token bigint NOT NULL, ends timestamptz NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS vanwinkle_data (
    key text PRIMARY KEY, value text NOT NULL, token bigint)""",
)

# What decides is the second WHERE, on the locked row; the first only saves tokens and writes while
# the lock is plainly held.  The token is drawn anew on the locked row: drawn before the wait for
# that, it could be lower than the token of the owner whom it waited for.
_ACQUIRE = """
INSERT INTO vanwinkle_lock AS held (key, token, ends)
SELECT $1::text, nextval('vanwinkle_token'), clock_timestamp() + make_interval(secs => $2)
WHERE NOT EXISTS
 (SELECT FROM vanwinkle_lock WHERE key = $1::text AND ends > clock_timestamp())
ON CONFLICT (key) DO UPDATE
SET token = nextval('vanwinkle_token'), ends = clock_timestamp() + make_interval(secs => $2)
WHERE held.ends <= clock_timestamp()
RETURNING token"""
_RENEW = """
UPDATE vanwinkle_lock SET ends = clock_timestamp() + make_interval(secs => $3)
WHERE key = $1 AND token = $2 AND ends > clock_timestamp() RETURNING token"""
_RELEASE = """
UPDATE vanwinkle_lock SET ends = '-infinity'
WHERE key = $1 AND token = $2 AND ends > clock_timestamp() RETURNING token"""
_CHECK = """
SELECT token FROM vanwinkle_lock WHERE key = $1 AND token = $2 AND ends > clock_timestamp()"""

_TRY_LOCK = """
SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0)) THEN nextval('vanwinkle_token') END
"""
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
_HEARTBEAT = "SELECT 1"

_READ = "SELECT value, token FROM vanwinkle_data WHERE key = $1"
_WRITE = """
INSERT INTO vanwinkle_data AS kept (key, value, token) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, token = excluded.token
{guard} RETURNING old.key, old.value, old.token"""
_WRITE_PLAIN = _WRITE.format(guard="")
_WRITE_FENCED = _WRITE.format(guard="WHERE kept.token <= excluded.token")


class _Client:
    """One session, made when it is needed, and anew when the last one ended."""

    def __init__(self, place: Place, timeout_s: float) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._session: Session | None = None

    def _ask(self, sql: str, *values: object) -> list[tuple[str | None, ...]]:
        if self._session is None or self._session.ended:
            self.close()
            self._session = Session(self._place, self._timeout_s)
        try:
            return self._session.ask(sql, *values)
        except SessionLostError:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None


class RowLock(_Client):
    """A row for every lock, with the token and the end of the lease by the server's clock."""

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held")."""
        rows = self._ask(_ACQUIRE, key, ttl_s)
        if not rows:
            raise RefusedError("held")
        return Grant(key, token=int(rows[0][0] or 0), ttl_s=ttl_s)

    def renew(self, grant: Grant) -> None:
        """Extend the lease by its full TTL or raise RefusedError("not-holder")."""
        self._expect(_RENEW, grant, grant.ttl_s)

    def release(self, grant: Grant) -> None:
        """End the lease if it is ours, else raise RefusedError("not-holder")."""
        self._expect(_RELEASE, grant)

    def check(self, grant: Grant) -> bool:
        """Return whether the row still names this grant, and its lease lasts."""
        return bool(self._ask(_CHECK, grant.key, grant.token))

    def _expect(self, sql: str, grant: Grant, *more: object) -> None:
        if not self._ask(sql, grant.key, grant.token, *more):
            raise RefusedError("not-holder")


class AdvisoryLock:
    """A session for every grant; the handle of a grant is its session.

    As in the libraries that do this, a flag says whether the lock is held, and only the client's
    own calls change it: nobody tells the client that its session has ended.
    """

    def __init__(self, place: Place, timeout_s: float) -> None:
        self._place = place
        self._timeout_s = timeout_s
        self._held: set[Session] = set()

    def acquire(self, key: str, ttl_s: float) -> Grant:
        """Take the lock or raise RefusedError("held"); `ttl_s` is rounded to milliseconds.

        The server ends a session that is idle for the TTL, and the lock with it.
        """
        ttl_ms = round(ttl_s * 1000)
        session = Session(self._place, self._timeout_s, idle_session_timeout=ttl_ms)
        try:
            ((token,),) = session.ask(_TRY_LOCK, key)
        except Exception:
            session.close()
            raise
        if token is None:
            session.close()
            raise RefusedError("held")
        self._held.add(session)
        return Grant(key, token=int(token), ttl_s=ttl_ms / 1000, handle=session)

    def renew(self, grant: Grant) -> None:
        """Show the server that the session lives, or raise RefusedError("not-holder").

        A late answer is no reason to end the session: the lock would go with it.
        """
        session = _session_of(grant)
        try:
            session.ask(_HEARTBEAT)
        except SqlError as error:
            if error.severity == "ERROR":
                raise
            raise RefusedError("not-holder", str(error)) from error

    def release(self, grant: Grant) -> None:
        """Unlock, and end the session, or raise RefusedError("not-holder")."""
        self._held.discard(grant.handle)
        session = _session_of(grant)
        try:
            ((unlocked,),) = session.ask(_UNLOCK, grant.key)
        finally:
            session.close()
        if unlocked != "t":
            raise RefusedError("not-holder")

    def believes(self, grant: Grant) -> bool:
        """Return the flag: set by a grant, cleared by its release."""
        return grant.handle in self._held

    def close(self) -> None:
        """End every session."""
        while self._held:
            self._held.pop().close()


def _session_of(grant: Grant) -> Session:
    """Return the session of a grant that lives, or raise RefusedError("not-holder")."""
    if not isinstance(grant.handle, Session) or grant.handle.ended:
        raise RefusedError("not-holder", "the session has ended")
    return grant.handle


class PostgresStore(_Client):
    """A row for every resource, with the token of its last write."""

    def __init__(self, place: Place, timeout_s: float, *, fenced: bool) -> None:
        super().__init__(place, timeout_s)
        self._fenced = fenced

    def read(self, key: str) -> Stored | None:
        """Return the current value, None when nothing was ever written."""
        rows = self._ask(_READ, key)
        return _stored(*rows[0]) if rows else None

    def write(self, key: str, value: Any, token: int | None) -> Stored | None:
        """Write and return what was overwritten; fenced: or raise RefusedError("fenced")."""
        if self._fenced and token is None:
            raise RefusedError("fenced", "the write carries no token")
        sql = _WRITE_FENCED if self._fenced else _WRITE_PLAIN
        rows = self._ask(sql, key, msgspec.json.encode(value).decode(), token)
        if not rows:
            # The token of a row only grows, so what is read now is what refused, or a later one.
            highest = self._ask(_READ, key)[0][1]
            raise RefusedError("fenced", f"token {token} is below {highest}, the highest seen")
        before, *old = rows[0]
        return None if before is None else _stored(*old)


def _stored(value: str | None, token: str | None) -> Stored:
    return Stored(_decoded(value or ""), None if token is None else int(token))


def _decoded(text: str, decode: Callable[[str], Any] = msgspec.json.decode) -> Any:
    """Return the value that was encoded; text that somebody else put there comes back as it is."""
    try:
        return decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
