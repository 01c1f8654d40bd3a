"""Traps: orders to a worker to stop itself at a phase, laid on the next operation that passes it.

A pause that is sent from outside lands between a lease check and a write once in a hundred times.
A worker that was told to stop itself there lands every time.  A trap is laid by a fault, goes out
with the next fitting operation of a fitting worker, and comes back if that operation ends
elsewhere (the lock was refused, the lease was found lost).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.protocol import Phase

# The operation during which each phase is passed.
PHASE_OF = {
    "queued": "acquire",
    "acquired": "acquire",
    "lease-checked": "check",
    "before-write": "check",
    "renewing": "renew",
}


@dataclass(frozen=True)
class Reached:
    """A worker passed the phase.  `stopped` says that it stopped itself there."""

    worker: str
    op: int
    key: str | None
    token: int | None
    time_ns: int
    stopped: bool


@dataclass
class Trap:
    """One order: at `phase`, of a worker that `fits`.

    `before(worker)` runs before the operation is sent (the undo ledger is written there) and
    `after(worker)` when it ended without reaching the phase.
    """

    phase: str
    fits: Callable[[str], bool]
    before: Callable[[str], None]
    after: Callable[[str], None]
    reached: "asyncio.Future[Reached]"
    worker: str | None = None
    op: int = -1
    lifted: bool = False


@dataclass
class Traps:
    """The traps that are laid now.

    `orphan(worker)` is called when a worker stopped itself for a trap that was lifted meanwhile: it
    must be resumed at once.  `asleep` counts by worker how often it said that it stops itself and
    has not said yet that it goes on (its two threads may each stop it).  `claimed` counts the stops
    that belong to a window which is about to begin: nobody else may end them.
    """

    orphan: Callable[[str], None]
    laid: list[Trap] = field(default_factory=list)
    asleep: Counter[str] = field(default_factory=Counter)
    claimed: Counter[str] = field(default_factory=Counter)

    def lay(self, trap: Trap) -> None:
        """Lay a trap."""
        self.laid.append(trap)

    def lift(self, trap: Trap) -> None:
        """Take a trap away; one that is out with an operation goes when that operation ends."""
        trap.lifted = True
        if trap.worker is None and trap in self.laid:
            self.laid.remove(trap)

    def spring(self, worker: str, f: str) -> Trap | None:
        """Return the trap that goes out with the operation `f` that is about to be sent."""
        for trap in self.laid:
            if trap.worker is None and PHASE_OF[trap.phase] == f and trap.fits(worker):
                assert not trap.lifted
                trap.before(worker)
                trap.worker = worker
                return trap
        return None

    def passed(self, worker: str, message: Phase, now_ns: int) -> None:
        """A phase was passed: tell whoever waits for it."""
        if message.resumed:
            self.asleep[worker] -= 1
            return
        if message.stopping:
            self.asleep[worker] += 1
        for trap in self.laid:
            if trap.worker == worker and trap.op == message.id and trap.phase == message.phase:
                self.laid.remove(trap)
                if trap.lifted:
                    break
                self.claimed[worker] += message.stopping
                trap.reached.set_result(
                    Reached(
                        worker, message.id, message.key, message.token, now_ns, message.stopping
                    )
                )
                return
        if message.stopping:
            self.orphan(worker)

    def over(self, op_id: int, result: str) -> None:
        """An operation ended; a trap that went out with it and was not reached may go out again.

        `acquired` is passed just after the answer, so a grant leaves its trap where it is.
        """
        for trap in list(self.laid):
            if trap.op == op_id and not (trap.phase == "acquired" and result == "ok"):
                if trap.worker is not None:
                    trap.after(trap.worker)
                trap.worker, trap.op = None, -1
                if trap.lifted:
                    self.laid.remove(trap)
