"""How long the exact checks take, by model and size, and beside Porcupine where Go is installed.

    python bench/checking.py [--operations N ...] [--porcupine] [--limit SECONDS]

All times are CPU time, so that other work on the machine does not count.  The first table is one
key with 10 % unknown outcomes; "check" is from columns in memory to the verdict, medians of five,
"lines" from a file of JSON lines to the verdict; each in a process of its own, whose peak memory
is printed.  The second is the register with compare-and-set
over five values, which needs the search.

With `--porcupine` Porcupine judges the same rows (`bench/versus.py`): the 120 files of the
generator, and the 102 logs of etcd that its own tests have.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.generate import Wanted, columns_of, history
from bench.versus import compare
from harness.checking import MODELS, turns
from harness.checking.columns import FAIL, NO_TOKEN, OK, Columns, load, save
from harness.checking.engine import Judge
from harness.checking.lines import columns_of_lines
from harness.checking.models import Options
from harness.op import Op, OpType, encode

SIZES = (10_000, 100_000, 1_000_000)


def judged(
    columns: Columns, model: str, budget_s: float = 120.0, initial: object = 0
) -> tuple[str, float]:
    """The verdict and how long it took in seconds."""
    judge = Judge(MODELS[model], Options(initial), time.monotonic() + budget_s)
    began = time.process_time()
    found = judge.judge(columns)
    took = time.process_time() - began
    return "fail" if found.illegal else "unknown" if found.limits else "pass", took


def median(measure: Callable[[], float], times: int = 5) -> float:
    """The median of some measurements."""
    return statistics.median(measure() for _ in range(times))


def timed(work: Callable[[], Any]) -> float:
    """How long something takes in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


def unique_values(operations: int, folder: Path) -> None:
    """One line a model: unique values, one key, 10 % unknown; each in a process of its own."""
    for model in ("register", "cas", "fenced", "lock"):
        file = folder / f"{model}.npz"
        save(columns_of(history(Wanted(model, operations, 0.1))), file)
        write_lines(load(file), file.with_suffix(".jsonl"))
        for path in (file, file.with_suffix(".jsonl")):
            command = [sys.executable, __file__, "--measure", str(path), model]
            subprocess.run(command, check=True)


def write_lines(columns: Columns, path: Path) -> None:
    """Write the ops of some columns as our runs do."""
    events = []
    types: dict[int, OpType] = {OK: "ok", FAIL: "fail"}
    for row in range(len(columns)):
        f, outcome = columns.kinds.names[columns.kind[row]], int(columns.outcome[row])
        key, error = columns.keys.names[columns.key[row]], columns.errors.names[columns.error[row]]
        old, new, seen = (
            columns.values[int(each[row])] if each[row] > 0 else None
            for each in (columns.expected, columns.value, columns.result)
        )
        token, told = (
            int(each[row]) if each[row] > NO_TOKEN else None
            for each in (columns.token, columns.result_token)
        )
        begun = Op(
            process=int(columns.process[row]),
            type="invoke",
            f=f,
            key=key,
            value=[old, new] if f == "cas" else new,
            token=token,
            time_ns=int(columns.call[row]),
            worker="w1",
        )
        events.append((begun.time_ns, 0, encode(begun)))
        if outcome in types:
            changes = {"type": types[outcome], "time_ns": int(columns.ret[row]), "error": error}
            refused = f == "cas" and outcome == FAIL
            changes |= {"value": {"saw": seen} if refused else seen, "token": told}
            ended = msgspec.structs.replace(begun, **changes)
            events.append((ended.time_ns, 1, encode(ended)))
    events.sort(key=lambda event: event[:2])
    path.write_bytes(b"".join(line for *_, line in events))


def measure(file: Path, model: str) -> None:
    """Print the line of one file, of columns or of JSON lines."""
    name = "lease" if model == "lock" else model
    if file.suffix == ".jsonl":
        lines_s = median(lambda: timed(lambda: from_lines(file, name)), 3)
        print(f"{model:9} lines {lines_s:5.2f} s  peak {peak_mb()} MB", flush=True)
        return
    columns = load(file)
    verdict, _ = judged(columns, name)
    peak = peak_mb()
    check_s = median(lambda: judged(columns, name)[1])
    load_s = median(lambda: timed(lambda: load(file)))
    operations = len(columns)
    print(
        f"{model:9} {operations:9,} {verdict:7} load {load_s:6.3f} s  check {check_s:7.4f} s"
        f"  {check_s / operations * 1e6:6.3f} us an operation  peak {peak} MB",
        flush=True,
    )


def peak_mb() -> int:
    """The most memory that this process has had, without what its parent had when it began.

    `getrusage` says the greater of the two.
    """
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) // 1024


def from_lines(path: Path, model: str) -> None:
    """Read a file of JSON lines, and judge it."""
    columns = columns_of_lines(path)
    assert columns is not None
    judged(columns, model)


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


def side_by_side(limit_s: float) -> None:
    """Eight keys that need the search, one after the other and in processes; time of the clock."""
    wanted = Wanted("cas", 80_000, 0.01, keys=8, values=5, clients=40)
    columns = columns_of(history(wanted))
    pays_s = turns.PAYS_S
    for name, threshold in (("one after the other", float("inf")), ("side by side", pays_s)):
        turns.PAYS_S = threshold
        began = time.monotonic()
        verdict, _ = judged(columns, "cas", limit_s)
        took = time.monotonic() - began
        print(f"8 hard keys, {name:19} {verdict:7} {took:6.2f} s", flush=True)
    turns.PAYS_S = pays_s


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--porcupine", action="store_true")
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "MODEL"), help="one file only")
    options = parser.parse_args()
    if options.measure:
        measure(Path(options.measure[0]), options.measure[1])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for operations in options.operations:
            unique_values(operations, folder)
        repeated_values(options.limit)
        side_by_side(options.limit)
        if options.porcupine:
            compare(judged, options.operations, folder, options.limit)


if __name__ == "__main__":
    main()
