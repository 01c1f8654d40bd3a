"""One session with a PostgreSQL server, by libpq, with a deadline for everything.

libpq is driven by hand because only so nothing waits longer than it may: a server that is frozen
accepts connections in its kernel and never answers, and no setting of libpq or of the server ends
that.  Each statement is its own transaction.  Nothing is ever sent twice.

Whether a statement took effect is known when the server is ready for the next one, not when it has
answered: the transaction commits in between, and an error of that commit comes after the rows.
"""

import select
import threading
import time
from typing import Any

from harness.target import Place
from targets._no_effect import NotConnectedError

Row = tuple[str | None, ...]


class SessionLostError(Exception):
    """The session ended, or did not answer in time, after a statement was sent."""


class SqlError(Exception):
    """The server answered with an error; `state` is its SQLSTATE.

    `severity` ERROR ends a statement, FATAL a session, PANIC all of them.
    """

    def __init__(self, state: str, severity: str, text: str) -> None:
        super().__init__(f"{severity} {state}: {text}")
        self.state = state
        self.severity = severity


class Session:
    """A session; `settings` are the server's settings for it.  Threads take turns."""

    def __init__(self, place: Place, timeout_s: float, **settings: object) -> None:
        """Connect.  Raises NotConnectedError."""
        from psycopg.pq import ConnStatus, PGconn, PollingStatus

        self._timeout_s = timeout_s
        self._turn = threading.RLock()
        self._answer_due = False
        end = time.monotonic() + timeout_s
        self._pg: Any = PGconn.connect_start(_conninfo(place, settings))
        try:
            while self._pg.status != ConnStatus.BAD:
                step = self._pg.connect_poll()
                if step == PollingStatus.OK:
                    self._pg.nonblocking = 1
                    return
                if step == PollingStatus.FAILED:
                    break
                self._wait(select.POLLIN if step == PollingStatus.READING else select.POLLOUT, end)
        except TimeoutError as late:
            self.close()
            raise NotConnectedError(f"no session within {timeout_s:g} s") from late
        text = self._pg.get_error_message().strip()
        self.close()
        raise NotConnectedError(text)

    def ask(self, sql: str, *values: object) -> list[Row]:
        """Run one statement and return its rows as text, once its transaction is over.

        Raises SqlError, or SessionLostError.  After a late answer the session may go on: the next
        call first waits for that answer, which nobody wants any more.
        """
        with self._turn:
            return self._ask(sql, values)

    def _ask(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        import psycopg

        end = time.monotonic() + self._timeout_s
        given = [None if value is None else str(value).encode() for value in values]
        try:
            if self._answer_due:
                self._answer(end)
            self._pg.send_query_params(sql.encode(), given)
            results = self._answer(end)
        except TimeoutError as late:
            raise SessionLostError(f"no answer within {self._timeout_s:g} s") from late
        except psycopg.Error as lost:
            self.close()
            raise SessionLostError(str(lost).strip()) from lost
        rows: list[Row] = []
        for result in results:
            self._raise_error(result)
            rows += [
                tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
                for row in range(result.ntuples)
            ]
        return rows

    def _answer(self, end: float) -> list[Any]:
        """Return all results up to the point at which the server is ready again."""
        self._answer_due = True
        while self._pg.flush():
            if self._wait(select.POLLIN | select.POLLOUT, end) & select.POLLIN:
                self._pg.consume_input()
        results: list[Any] = []
        while True:
            while self._pg.is_busy():
                self._wait(select.POLLIN, end)
                self._pg.consume_input()
            result = self._pg.get_result()
            if result is None:
                self._answer_due = False
                return results
            results.append(result)

    def _raise_error(self, result: Any) -> None:
        from psycopg.pq import DiagnosticField, ExecStatus

        if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            return
        state = _text(result.error_field(DiagnosticField.SQLSTATE))
        severity = _text(result.error_field(DiagnosticField.SEVERITY_NONLOCALIZED))
        if severity != "ERROR":
            self.close()
        if state is None or severity is None:  # libpq's own: the connection broke
            raise SessionLostError(result.get_error_message().strip())
        text = _text(result.error_field(DiagnosticField.MESSAGE_PRIMARY)) or ""
        raise SqlError(state, severity, text)

    @property
    def ended(self) -> bool:
        """Whether it is closed, by us or by the server, as far as one can tell without asking."""
        from psycopg.pq import ConnStatus

        with self._turn:
            if self._pg.status == ConnStatus.BAD:
                return True
            if self._answer_due:
                return False
            idle = select.poll()
            idle.register(self._pg.socket, select.POLLIN)
            return bool(idle.poll(0))  # a server that was asked nothing says only good-bye

    def close(self) -> None:
        """Take leave and drop the connection, once nobody waits for an answer on it."""
        with self._turn:
            self._pg.finish()

    def _wait(self, events: int, end: float) -> int:
        """Wait for the socket and return what it is ready for.  Raises TimeoutError."""
        waiting = select.poll()
        waiting.register(self._pg.socket, events)
        ready = waiting.poll(max(0.0, end - time.monotonic()) * 1000)
        if not ready:
            raise TimeoutError
        return ready[0][1]


def _conninfo(place: Place, settings: dict[str, object]) -> bytes:
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return (
        f"hostaddr={place.address} port={place.port} user=postgres dbname=postgres"
        f" sslmode=disable gssencmode=disable options='{options}'"
    ).encode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
