"""`python -m harness.ssh.main RUN_DIR`: the harness of a run on hosts, as outer starts it."""

import os
import signal
import sys
from pathlib import Path

from harness.local.namespaces import die_with_parent
from harness.run import main

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    if os.getppid() == 1:  # outer died before the line above took effect
        sys.exit(1)
    # Outer held them back across the start.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    sys.exit(main(Path(sys.argv[1])))
