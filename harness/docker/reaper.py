"""`python -m harness.docker.reaper RUN`: removes everything of a run when its harness is gone.

It stands beside the harness, in a session of its own, and reads a pipe that only the harness holds
open.  However the harness ends, SIGKILL included, that pipe ends; whoever removed everything before
leaves nothing to do.
"""

import signal
import subprocess
import sys
import time

from harness.docker.engine import EngineError, connect
from harness.docker.sweep import remove

_TRIES = 20
_AGAIN_S = 0.25


def start(run: str) -> "subprocess.Popen[bytes]":
    """Start the reaper of a run; it acts when the returned process's `stdin` is closed."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.docker.reaper", run],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(run: str) -> int:
    """Wait for the end of input, then remove until nothing is found."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    api = connect()
    sys.stdin.buffer.read()
    for _ in range(_TRIES):
        try:
            if not remove(api, [run]):  # what was being made when the harness died comes later
                return 0
        except EngineError as error:
            sys.stderr.write(f"reaper of {run}: {error}\n")
        time.sleep(_AGAIN_S)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
