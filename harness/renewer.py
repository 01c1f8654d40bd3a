"""The background renewal of leases inside a worker, and what the worker believes it holds.

The renewals follow the worker's own monotonic clock, as those of real client libraries do, so they
stop when the process is frozen and run wrong when its clock does.  A grant counts as held, in the
worker's eyes, until its lease has ended by that clock, counted from before the last acknowledged
renewal was sent.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.answer import completion
from harness.bell import Bell
from harness.phase import pass_phase
from harness.protocol import Ask, Belief, Done, FromWorker, Go, Phase
from harness.target import Grant, LockClient, RefusedError

RENEWALS_PER_LEASE = 3
_LOOK_S = 0.02

Send = Callable[[FromWorker], None]


@dataclass
class Holding:
    """A grant in force, in the worker's eyes; times are its own monotonic seconds.

    `queued`: it is only a place in the queue, whose lease is kept alive until it is granted.
    """

    grant: Grant
    deadline: float
    renew_at: float
    queued: bool = False

    @classmethod
    def since(cls, grant: Grant, began: float, *, queued: bool = False) -> "Holding":
        """Return what the request of `began` brought."""
        renew_at = began + grant.ttl_s / RENEWALS_PER_LEASE
        return cls(grant, began + grant.ttl_s, renew_at, queued)


class Holdings:
    """What this worker believes it holds; every change is reported.

    `believes` is what the client library itself says of a grant, None when it says nothing.
    """

    def __init__(self, send: Send, believes: Callable[[Grant], bool] | None = None) -> None:
        self._send = send
        self._believes = believes
        self._lock = threading.Lock()
        self._held: dict[str, Holding] = {}
        self._queued: dict[str, Holding] = {}
        self.changed = Bell()

    def gain(self, grant: Grant, began: float) -> None:
        """Note a grant whose request began at `began`."""
        with self._lock:
            self._held[grant.key] = Holding.since(grant, began)
        self._tell(grant, grant.ttl_s - (time.monotonic() - began), "granted")
        self.changed.ring()

    def queue(self, grant: Grant, began: float) -> None:
        """Note a place in the queue, whose request began at `began`: its lease is kept alive."""
        with self._lock:
            self._queued[grant.key] = Holding.since(grant, began, queued=True)
        self.changed.ring()

    def leave_queue(self, key: str) -> float | None:
        """Note that the wait is over; return when the last acknowledged request began.

        None when the service had refused to keep the place alive.
        """
        with self._lock:
            place = self._queued.pop(key, None)
        return None if place is None else place.deadline - place.grant.ttl_s

    def renewed(self, grant: Grant, began: float) -> None:
        """Note an acknowledged renewal whose request began at `began`."""
        with self._lock:
            holding = self._find(grant)
            if holding is None:
                return
            holding.deadline = began + grant.ttl_s
            holding.renew_at = began + grant.ttl_s / RENEWALS_PER_LEASE
        if not holding.queued:
            self._tell(grant, grant.ttl_s - (time.monotonic() - began), "renewed")

    def postpone(self, grant: Grant, until: float) -> None:
        """Try the next renewal of a grant at `until`."""
        with self._lock:
            holding = self._find(grant)
            if holding is not None:
                holding.renew_at = until

    def _find(self, grant: Grant) -> Holding | None:
        known = (self._held.get(grant.key), self._queued.get(grant.key))
        return next((one for one in known if one is not None and one.grant is grant), None)

    def lose(self, key: str, why: str, grant: Grant | None = None) -> Grant | None:
        """Note that a lock is no longer held; return the grant that was (if it is `grant`)."""
        with self._lock:
            holding = self._held.get(key)
            if holding is None or (grant is not None and holding.grant is not grant):
                return None
            del self._held[key]
        self._tell(holding.grant, None, why)
        return holding.grant

    def grant(self, key: str) -> Grant | None:
        """Return the grant that is held on `key`, None when it is lost or its lease has ended."""
        self.expire()
        with self._lock:
            holding = self._held.get(key)
            return None if holding is None else holding.grant

    def expire(self) -> None:
        """Drop every grant whose lease has ended by this worker's clock, or by its library."""
        now = time.monotonic()
        with self._lock:
            held = list(self._held.values())
        for one in held:
            if self._believes is not None:
                if not self._believes(one.grant):
                    self.lose(one.grant.key, "its client library says so", one.grant)
            elif one.deadline <= now:
                self.lose(one.grant.key, "its lease ended by the worker's own clock", one.grant)

    def refused(self, grant: Grant) -> None:
        """Note that the service refused a renewal; a library may go on believing all the same."""
        with self._lock:
            place = self._queued.get(grant.key)
            if place is not None and place.grant is grant:
                del self._queued[grant.key]
                return
        if self._believes is not None and self._believes(grant):
            self.postpone(grant, time.monotonic() + grant.ttl_s / RENEWALS_PER_LEASE)
        else:
            self.lose(grant.key, "the service refused the renewal", grant)

    @property
    def look_s(self) -> float | None:
        """How often what the library says must be looked at; None when it says nothing."""
        return None if self._believes is None else _LOOK_S

    def next_due(self) -> Holding | None:
        """Return the holding whose renewal is due first."""
        with self._lock:
            known = [*self._held.values(), *self._queued.values()]
            return min(known, key=lambda h: h.renew_at, default=None)

    def _tell(self, grant: Grant, left_s: float | None, why: str) -> None:
        holds = left_s is not None
        if self._believes is not None:
            left_s = None  # the library alone knows when it stops to believe
        self._send(Belief(key=grant.key, token=grant.token, holds=holds, left_s=left_s, why=why))


class Renewer:
    """The thread that renews what is held, one lease at a time, after asking the controller."""

    def __init__(
        self,
        send: Send,
        client: LockClient,
        target: object,
        holdings: Holdings,
    ) -> None:
        self._send = send
        self._client = client
        self._target = target
        self._holdings = holdings
        self._gos: queue.SimpleQueue[Go] = queue.SimpleQueue()
        self._asked = 0

    def go(self, message: Go) -> None:
        """Hand over the controller's permission."""
        self._gos.put(message)

    def run(self) -> None:
        """Renew for ever."""
        while True:
            self._holdings.expire()
            holding = self._holdings.next_due()
            if holding is None:
                self._holdings.changed.wait()
                continue
            wait = holding.renew_at - time.monotonic()
            if wait > 0:
                # A new grant may be due earlier than this one, and a library may stop to believe.
                # A clock that was made to run faster is followed by looking at it often.
                self._holdings.changed.wait(min(wait, self._holdings.look_s or _LOOK_S))
                continue
            self._renew(holding.grant, "keep" if holding.queued else "renew")

    def _renew(self, grant: Grant, f: str) -> None:
        self._asked += 1
        self._send(Ask(ask=self._asked, f=f, key=grant.key, token=grant.token))
        go = self._gos.get()
        phase = Phase(phase="renewing", id=go.id, key=grant.key, token=grant.token)
        pass_phase(self._send, go.stop_at, phase)
        began = time.monotonic()
        try:
            self._client.renew(grant)
        except Exception as error:  # noqa: BLE001 - the error table decides what it means
            if isinstance(error, RefusedError):
                self._holdings.refused(grant)
            else:
                # Try again soon: a lease is lost by waiting a third of it after each time-out.
                self._holdings.postpone(grant, time.monotonic() + grant.ttl_s / 10)
            self._send(completion(go.id, self._target, error))
            return
        self._holdings.renewed(grant, began)
        self._send(Done(id=go.id, result="ok"))
