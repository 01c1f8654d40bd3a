"""Operations a second through the controller, with workers that do nothing.

    python bench/controller.py [SECONDS]

Ten worker processes answer at once; each operation is two lines on disk, written before it is sent
and when it came back.  Prints one line a number of workers.
"""

import sys
import tempfile
from pathlib import Path

from harness.api import execute
from harness.runfile import from_values

NOOP = str(Path(__file__).resolve().parent / "noop.py")


def measure(workers: int, seconds: float) -> float:
    """Return the operations a second of one run."""
    spec = from_values(
        {
            "lock": f"{NOOP}:Noop",
            "store": f"{NOOP}:Noop",
            "workload": f"{NOOP}:Flood",
            "workers": workers,
            "readers": 0,
            "time": f"{seconds:g}s",
        }
    )
    with tempfile.TemporaryDirectory() as out:
        result = execute(spec, Path(out), quiet=True)
    assert result.results is not None, result.error
    calls: int = result.results.verdict.stats["calls"]
    return calls / seconds


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for workers in (1, 3, 10, 20):
        print(f"{workers:3} workers: {measure(workers, seconds):9,.0f} ops/s", flush=True)


if __name__ == "__main__":
    main()
