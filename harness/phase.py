"""Passing a phase inside a worker: say it, and stop there if that was ordered."""

import signal
import threading
from collections.abc import Callable

import msgspec

from harness.protocol import FromWorker, Phase


def pass_phase(send: Callable[[FromWorker], None], stop_at: str | None, phase: Phase) -> None:
    """Report the phase; when it is the ordered one, freeze this whole process there."""
    if stop_at != phase.phase:
        send(phase)
        return
    send(msgspec.structs.replace(phase, stopping=True))
    # A signal to the process may be taken by another thread while this one runs on for some
    # microseconds, long enough to send a write.  A signal to the thread itself is taken at once.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    send(msgspec.structs.replace(phase, resumed=True))
