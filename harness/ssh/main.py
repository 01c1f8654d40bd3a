"""`python -m harness.ssh.main RUN_DIR`: the harness of a run whose nodes are on hosts."""

import sys
from pathlib import Path

from harness.local import sandbox
from harness.run import main as run

if __name__ == "__main__":
    sys.exit(sandbox.run_unboxed(lambda: run(Path(sys.argv[1]))))
