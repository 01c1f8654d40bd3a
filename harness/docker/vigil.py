"""Who removes what is left of a run: its reaper while that lives, else whoever comes.

Two who remove the same things at once can leave a network that the engine takes for used, by
nobody, until it is started again.  So whoever removes can be heard, and others wait for its end.
What is heard is a socket without a file, whose name ends with the process that has it.
"""

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager

REAPED_S = 20.0
_ASKERS = 128


def _address(run: str) -> str:
    return f"\0vanwinkle-reaper-{run}"


@contextmanager
def heard(run: str) -> Iterator[bool]:
    """Be the one that removes what is left of a run; False when another one is."""
    with socket.socket(socket.AF_UNIX) as here:
        try:
            here.bind(_address(run))
            here.listen(_ASKERS)
            alone = True
        except OSError:
            alone = False
        yield alone


def await_end(run: str, bound_s: float = REAPED_S) -> bool:
    """Wait until the one that removes a run has done so; return whether there was one."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(bound_s)
        try:
            line.connect(_address(run))
        except OSError:
            return False
        with contextlib.suppress(OSError):
            line.recv(1)  # it says nothing: this returns with its end
        return True
