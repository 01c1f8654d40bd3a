"""`python -m harness.docker.reaper RUN`: removes everything of a run when its harness is gone.

It stands beside the harness, in a session of its own, and reads a pipe that only the harness holds
open.  However the harness ends, SIGKILL included, that pipe ends; whoever removed everything before
leaves nothing to do.  While the harness lives it writes now and then.  A harness that is silent for
longer than holders wait is taken for stuck: what the engine froze for it is thawed, which no holder
can do, as it undoes everything else.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from harness.docker import vigil
from harness.docker.engine import EngineError, connect
from harness.docker.project import SILENCE_S
from harness.docker.sweep import held, remove, thaw

_TRIES = 20
_AGAIN_S = 0.25


class Reaper:
    """The reaper of a run, seen from the harness."""

    def __init__(self, run: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.docker.reaper", run],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()
        os.set_blocking(self._pipe, False)

    def beat(self) -> None:
        """Tell it that the harness lives."""
        with contextlib.suppress(OSError):  # it is gone, or so busy that the pipe is full
            os.write(self._pipe, b".")

    def finish(self) -> None:
        """Let it remove what is left, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(run: str) -> int:
    """Wait for the end of input, then remove until nothing is found."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with vigil.heard(run):
        api = connect()
        _await_end(api, run)
        return _remove(api, run)


def _remove(api: Any, run: str) -> int:
    for _ in range(_TRIES):
        try:
            if not remove(api, [run]):  # what was being made when the harness died comes later
                return 0
        except EngineError as error:
            sys.stderr.write(f"reaper of {run}: {error}\n")
        time.sleep(_AGAIN_S)
    with contextlib.suppress(EngineError):
        sys.stderr.writelines(f"winkle: {why}\n" for why in held(api, run))
    return 1


def _await_end(api: Any, run: str) -> None:
    """Read until the end of input; thaw once in each silence."""
    heard = True
    while True:
        ready, _, _ = select.select([0], [], [], SILENCE_S if heard else None)
        if ready and not os.read(0, 1 << 16):
            return
        heard = bool(ready)
        if not heard:
            with contextlib.suppress(EngineError):
                thaw(api, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
