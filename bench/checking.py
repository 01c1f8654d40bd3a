"""How long the exact checks take, by model and size, and beside Porcupine where Go is installed.

    python bench/checking.py [--operations N ...] [--porcupine] [--limit SECONDS]

The first table is one key with 10 % unknown outcomes; "check" is from columns in memory to the
verdict, medians of five.  The second is the register with compare-and-set over five values, which
needs the search.  With `--porcupine` a small Go program is built in a temporary folder and judges
the same rows; a file that it does not finish within the limit or within 10 GB is shown as such.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.generate import Wanted, columns_of, files, history
from harness.checking import MODELS
from harness.checking.columns import Columns, load, save
from harness.checking.engine import Judge
from harness.checking.models import Options

SIZES = (10_000, 100_000, 1_000_000)
MEMORY_BYTES = 10 << 30
GO = Path(__file__).with_name("porcupine")


def judged(columns: Columns, model: str, budget_s: float = 120.0) -> tuple[str, float]:
    """The verdict and how long it took in seconds."""
    judge = Judge(MODELS[model], Options(0), time.monotonic() + budget_s)
    began = time.perf_counter()
    found = judge.judge(columns)
    took = time.perf_counter() - began
    return "fail" if found.finding else "unknown" if found.limits else "pass", took


def median(measure: Callable[[], float], times: int = 5) -> float:
    """The median of some measurements."""
    return statistics.median(measure() for _ in range(times))


def timed(work: Callable[[], Any]) -> float:
    """How long something takes in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def unique_values(operations: int, folder: Path) -> None:
    """One line a model: unique values, one key, 10 % unknown; each in a process of its own."""
    for model in ("register", "cas", "fenced", "lock"):
        file = folder / f"{model}.npz"
        save(columns_of(history(Wanted(model, operations, 0.1))), file)
        command = [sys.executable, __file__, "--measure", str(file), model]
        subprocess.run(command, check=True)


def measure(file: Path, model: str, operations: int) -> None:
    """Print the line of one file of columns."""
    load_s = median(lambda: timed(lambda: load(file)))
    columns = load(file)
    name = "lease" if model == "lock" else model
    verdict, _ = judged(columns, name)
    check_s = median(lambda: judged(columns, name)[1])
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{model:9} {operations:9,} {verdict:7} load {load_s:6.3f} s  check {check_s:6.3f} s"
        f"  {check_s / operations * 1e6:6.3f} us an operation  peak {peak_mb} MB",
        flush=True,
    )


def repeated_values(limit_s: float) -> None:
    """One line a share of unknown outcomes: five values, so the search."""
    for operations in (1_000, 10_000):
        for crash in (0.0, 0.01, 0.1):
            wanted = Wanted("cas", operations, crash, values=5, clients=5)
            verdict, took = judged(columns_of(history(wanted)), "cas", limit_s)
            print(
                f"repeated  {operations:9,} {crash:4.0%} {verdict:7} check {took:6.3f} s",
                flush=True,
            )


def build(folder: Path) -> Path:
    """Build the Go program; its module comes from the Go module proxy."""
    for source in ("main.go", "go.mod"):
        (folder / source).write_bytes((GO / f"{source}.txt").read_bytes())
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "judge", "."]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "judge"


def porcupine(program: Path, wanted: Wanted, folder: Path, limit_s: float) -> str:
    """What Porcupine says of the rows, and its time for the check alone."""
    file = folder / "rows.txt"
    file.write_text("".join(" ".join(map(str, row)) + "\n" for row in history(wanted)))
    try:
        done = subprocess.run(
            [program, wanted.model, file],
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES,) * 2),
        )
    except subprocess.TimeoutExpired:
        return f"> {limit_s:.0f} s"
    return done.stdout.strip() if done.returncode == 0 else "out of memory"


def compare(sizes: list[int], folder: Path, limit_s: float) -> None:
    """One line a file: ours and theirs, measured one after the other."""
    program = build(folder)
    for wanted in files():
        if wanted.operations in sizes:
            columns = columns_of(history(wanted))
            verdict, _ = judged(columns, wanted.model)
            ours = statistics.median(judged(columns, wanted.model)[1] for _ in range(5))
            theirs = porcupine(program, wanted, folder, limit_s)
            print(f"{wanted.name:32} ours {verdict} {ours:9.6f} s   Porcupine {theirs}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--porcupine", action="store_true")
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--measure", nargs=2, metavar=("COLUMNS", "MODEL"), help="one file only")
    options = parser.parse_args()
    if options.measure:
        file = Path(options.measure[0])
        measure(file, options.measure[1], len(load(file)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for operations in options.operations:
            unique_values(operations, folder)
        repeated_values(options.limit)
        if options.porcupine:
            compare(options.operations, folder, options.limit)


if __name__ == "__main__":
    main()
