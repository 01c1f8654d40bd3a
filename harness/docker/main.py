"""`python -m harness.docker.main RUN_DIR`: the harness of a run whose nodes are containers."""

import os
import select
import signal
import sys
from pathlib import Path

from harness.local import namespaces, sandbox
from harness.run import SIGNALS
from harness.run import main as run


def main(run_dir: str) -> int:
    """Live the run that the folder describes; return its exit code."""
    lifeline, complaints = sandbox.descriptors()
    namespaces.die_with_parent(signal.SIGKILL)
    if select.select([lifeline], [], [], 0)[0]:
        return sandbox.UNAVAILABLE  # outer died before the line above took effect
    os.close(complaints)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # outer held them back across the start
    return run(Path(run_dir))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
