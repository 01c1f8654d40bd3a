"""From the order of a pause to its proof, and from the order to resume to its proof.

    python bench/faults.py [SECONDS]

Two faults at once on live workers: a pause from outside, and a worker that stops itself at a phase.
The times are those of the run's own record (`faults.jsonl`).
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.api import execute
from harness.runfile import from_values

NOOP = str(Path(__file__).resolve().parent / "noop.py")
FAULTS = (
    "pause:who=worker:1,at=500ms,for=20ms,every=20ms",
    "pause:who=worker:2,at=before-write,for=20ms,every=20ms",
)


def quantiles(values: Sequence[float]) -> str:
    """Return median, 99th percentile and maximum."""
    ranked = sorted(values)
    p99 = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
    return f"p50 {ranked[len(ranked) // 2]:6.2f}  p99 {p99:6.2f}  max {ranked[-1]:6.2f} ms"


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    spec = from_values(
        {
            "lock": f"{NOOP}:Noop",
            "store": f"{NOOP}:Noop",
            "workload": f"{NOOP}:Hold",
            "faults": list(FAULTS),
            "workers": 3,
            "readers": 0,
            "time": f"{seconds:g}s",
        }
    )
    with tempfile.TemporaryDirectory() as out:
        result = execute(spec, Path(out), quiet=True)
        assert result.folder is not None, result.error
        lines = (result.folder / "faults.jsonl").read_text().splitlines()
    windows = [json.loads(line) for line in lines]
    for index, fault in enumerate(FAULTS):
        mine = [w for w in windows if w["spec"] == index]
        good = [w for w in mine if w["grade"] == "installed"]
        print(f"{fault}: {len(good)} of {len(mine)} proven")
        on = [(w["on_ns"] - w["requested_ns"]) / 1e6 for w in good]
        off = [(w["off_ns"] - w["heal_ns"]) / 1e6 for w in good]
        print(f"  order to proof of the pause:  {quantiles(on)}")
        print(f"  order to proof of the resume: {quantiles(off)}", flush=True)


if __name__ == "__main__":
    main()
