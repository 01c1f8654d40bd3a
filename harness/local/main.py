"""`python -m harness.local.main RUN_DIR`: the helper, which becomes the sandbox of a run."""

import sys
from pathlib import Path

from harness.local import sandbox


def main(run_dir: str) -> int:
    """Enter the sandbox and run what the run folder describes; return the run's exit code."""

    def harness() -> int:
        # Imported after the forks: the helper and init stay small.
        from harness.run import main as run

        return run(Path(run_dir))

    lifeline, complaints = sandbox.descriptors()
    return sandbox.run_helper(harness, lifeline, complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
