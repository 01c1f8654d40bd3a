"""`python -m harness.docker.main RUN_DIR`: the harness of a run whose nodes are containers."""

import sys
from pathlib import Path

from harness.local import sandbox
from harness.run import main as run

if __name__ == "__main__":
    sys.exit(sandbox.run_unboxed(lambda: run(Path(sys.argv[1]))))
