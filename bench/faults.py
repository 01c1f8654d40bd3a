"""From the order of a fault to its proof, and from the order to undo it to the proof of that.

    python bench/faults.py [KIND...] [--windows N]

Each kind is measured by itself on live workers that check their lease and think for 20 ms, N
windows of it (100 if not said).  The times are
those of the run's own record (`faults.jsonl`), so they include the probe that proves the fault.
"""

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.api import execute
from harness.runfile import from_values

NOOP = str(Path(__file__).resolve().parent / "noop.py")
WINDOW_S = 0.04  # a window with the pause after it, without the fault's own time

Row = tuple[str, Sequence[float]]


def quantiles(values: Sequence[float]) -> str:
    """Return median, 99th percentile (nearest rank: the second largest of 100) and maximum."""
    ranked = sorted(values)
    p99 = ranked[math.ceil(len(ranked) * 0.99) - 1]
    return f"p50 {ranked[len(ranked) // 2]:6.2f}  p99 {p99:6.2f}  max {ranked[-1]:6.2f} ms"


def windows(
    fault: str, count: int, own_s: float, length: str = "20ms", **values: Any
) -> list[dict[str, Any]]:
    """Run a fault `count` times and return its windows; `own_s` is what each takes by itself."""
    seconds = 2 + count * (WINDOW_S + own_s)
    given = {
        "lock": f"{NOOP}:Noop",
        "store": f"{NOOP}:Noop",
        "workload": {"name": f"{NOOP}:Hold", "options": {"think_ms": 20}},
        "faults": [f"{fault},for={length},every=20ms,count={count}"],
        "workers": 6,
        "readers": 0,
        "time": f"{seconds:g}s",
    }
    with tempfile.TemporaryDirectory() as out:
        result = execute(from_values(given | values), Path(out), quiet=True)
        assert result.folder is not None, result.error
        lines = (result.folder / "faults.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def recorded(fault: str, count: int, own_s: float, **values: Any) -> Iterator[Row]:
    """Yield both times of a fault, from the record."""
    found = windows(fault, count, own_s, **values)
    good = [w for w in found if w["grade"] == "installed"]
    yield (
        f"{fault}: {len(good)} of {len(found)} proven; order to proof",
        [(w["on_ns"] - w["requested_ns"]) / 1e6 for w in good],
    )
    yield "undone, order to proof", [(w["off_ns"] - w["heal_ns"]) / 1e6 for w in good]


def pause(count: int) -> Iterator[Row]:
    """A pause from outside, and a worker that stops itself at a phase."""
    yield from recorded("pause:who=worker:1,at=500ms", count, 0.02)
    yield from recorded("pause:who=worker:2,at=before-write", count, 0.02)


def partition(count: int) -> Iterator[Row]:
    """One node cut off from five, both ways; and when packets really stop and pass again."""
    yield from recorded("partition:who=worker:1,at=500ms", count, 0.05)
    yield from recorded("partition:who=worker:1,at=500ms,reject=true", count, 0.05)
    argv = [sys.executable, "-P", "-m", "bench.cuts", str(count)]
    told = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
    times = json.loads(told)
    yield "a datagram every 0.2 ms: order to the first that is lost", times["effect_ms"]
    yield "order to heal to the first that arrives", times["heal_ms"]


def link(count: int) -> Iterator[Row]:
    """A delay on all links of one node; most of the time is the burst that proves it."""
    yield from recorded("link:who=worker:1,at=500ms,delay=5ms", count, 0.4)


def message(count: int) -> Iterator[Row]:
    """A reply that is lost, as soon as a request comes by."""
    values = {
        "lock": "atlasmart",
        "store": "atlasmart",
        "workload": "fencing",
        "op_timeout": "50ms",
    }
    yield from recorded("message:who=w1,at=500ms", count, 0.3, length="300ms", **values)


def clock(count: int) -> Iterator[Row]:
    """Both clocks of a worker an hour ahead; the same of a Valkey and of an etcd server."""
    lie = "at=500ms,clock=both,jump=1h"
    yield from recorded(f"clock:who=worker:1,{lie}", count, 0.05)
    for name in ("valkey", "etcd"):
        values = {"lock": name, "store": "atlasmart", "workload": "fencing", "workers": 2}
        yield from recorded(f"clock:who={name}1,{lie}", count, 0.05, **values)


_PAIR = {"lock": "atlasmart", "store": "atlasmart", "workload": "fencing", "workers": 2}


def kill(count: int) -> Iterator[Row]:
    """A store that is killed, and started again on its data."""
    yield from recorded("kill:who=store,at=500ms", count, 0.6, **_PAIR)


def disk(count: int) -> Iterator[Row]:
    """No room, and no writing, on the disk of a store."""
    for what in ("full", "read-only"):
        yield from recorded(f"disk:who=store,at=500ms,what={what}", count, 0.6, **_PAIR)


def amnesia(count: int) -> Iterator[Row]:
    """A store that comes back with the data of the window's beginning."""
    yield from recorded("amnesia:who=store,at=500ms", count, 1.0, **_PAIR)


KINDS: dict[str, Callable[[int], Iterator[Row]]] = {
    "pause": pause,
    "partition": partition,
    "link": link,
    "message": message,
    "clock": clock,
    "kill": kill,
    "disk": disk,
    "amnesia": amnesia,
}


def main() -> None:
    """Measure and print."""
    words = sys.argv[1:]
    count = int(words[words.index("--windows") + 1]) if "--windows" in words else 100
    for kind in [word for word in words if word in KINDS] or KINDS:
        for name, values in KINDS[kind](count):
            print(f"{name}\n  {quantiles(values)}", flush=True)


if __name__ == "__main__":
    main()
