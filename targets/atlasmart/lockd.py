"""The lock server: leases on its own monotonic clock, with tokens that only grow.

A grant is in the journal before it is answered, so a restart knows every token that was given.  How
far a lease had run is not kept: after a restart each lease that was not released has its full TTL
again.  Late is safe; early would give the lock away under a holder that was promised it.

Run as `python -P -m targets.atlasmart.lockd ADDRESS PORT DATA`.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.target import RefusedError
from targets.atlasmart.journal import JOURNAL, Journal, records
from targets.atlasmart.wire import Acquire, Check, Release, Renew, serve


class Change(msgspec.Struct, frozen=True):
    """One line of the journal: this token was granted for `ttl_s`, or (None) it was released."""

    key: str
    token: int
    ttl_s: float | None


@dataclass
class Lease:
    """The last grant of a lock and when it ends; it never ended if nobody took over."""

    token: int
    ttl_s: float
    end_s: float


class Locks:
    """All locks, their last grants, and the journal behind them."""

    def __init__(self, path: Path, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._leases: dict[str, Lease] = {}
        for change in records(path, Change):
            self._apply(change)
        self._journal = Journal(path)

    def _apply(self, change: Change) -> None:
        ttl_s = change.ttl_s if change.ttl_s is not None else 0.0
        self._leases[change.key] = Lease(change.token, ttl_s, self._now_s() + ttl_s)

    def _commit(self, change: Change) -> None:
        self._journal.append(change)
        self._apply(change)

    def _current(self, key: str) -> Lease | None:
        lease = self._leases.get(key)
        return lease if lease is not None and self._now_s() < lease.end_s else None

    def _held(self, key: str, token: int | None) -> Lease:
        lease = self._current(key)
        if lease is None or lease.token != token:
            raise RefusedError("not-holder", f"token {token} does not hold the lock")
        return lease

    def handle(self, request: Acquire | Renew | Release | Check) -> Any:
        """Decide one request.  Raises RefusedError, JournalError."""
        match request:
            case Acquire(key, ttl_s):
                if self._current(key) is not None:
                    raise RefusedError("held")
                last = self._leases.get(key)
                token = 1 if last is None else last.token + 1
                self._commit(Change(key, token, ttl_s))
                return {"token": token, "ttl_s": ttl_s}
            case Renew(key, token):
                held = self._held(key, token)
                held.end_s = self._now_s() + held.ttl_s
                return None
            case Release(key, token):
                self._held(key, token)
                self._commit(Change(key, token, None))
                return None
            case Check(key, token):
                lease = self._current(key)
                return lease is not None and lease.token == token


def main(address: str, port: str, data: str) -> None:
    """Serve until killed."""
    locks = Locks(Path(data) / JOURNAL, time.monotonic)
    serve(address, int(port), Acquire | Renew | Release | Check, locks.handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
