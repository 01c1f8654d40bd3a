"""How long the exact checks take, by model and size, and beside Porcupine where Go is installed.

    python bench/checking.py [--operations N ...] [--porcupine] [--limit SECONDS]

All times are CPU time, so that other work on the machine does not count.  The first table is one
key with 10 % unknown outcomes; "check" is from columns in memory to the verdict, medians of five,
"lines" from a file of JSON lines to the verdict.  The second is the register with compare-and-set
over five values, which needs the search.

With `--porcupine` a small Go program is built in a temporary folder and judges the same rows, and
the 102 logs of etcd that Porcupine's tests have; a file that it does not finish within the limit or
within 10 GB is shown as such.
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

import msgspec

from bench.generate import Wanted, columns_of, files, history, rows_of_columns
from harness.checking import MODELS
from harness.checking.columns import FAIL, NO_TOKEN, OK, Columns, from_history, load, save
from harness.checking.engine import Judge
from harness.checking.lines import columns_of_lines
from harness.checking.models import Options
from harness.importing import load as import_history
from harness.op import Op, OpType, encode

SIZES = (10_000, 100_000, 1_000_000)
MEMORY_BYTES = 10 << 30
GO = Path(__file__).with_name("porcupine")


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
        command = [sys.executable, __file__, "--measure", str(file), model]
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


def measure(file: Path, model: str, operations: int) -> None:
    """Print the line of one file of columns."""
    columns = load(file)
    name = "lease" if model == "lock" else model
    verdict, _ = judged(columns, name)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    check_s = median(lambda: judged(columns, name)[1])
    load_s = median(lambda: timed(lambda: load(file)))
    lines_s = median(lambda: timed(lambda: from_lines(file.with_suffix(".jsonl"), name)))
    print(
        f"{model:9} {operations:9,} {verdict:7} load {load_s:6.3f} s  check {check_s:7.4f} s"
        f"  {check_s / operations * 1e6:6.3f} us an operation  peak {peak_mb} MB"
        f"  lines {lines_s:5.2f} s",
        flush=True,
    )


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


def build(folder: Path) -> Path:
    """Build the Go program; its module comes from the Go module proxy."""
    for source in ("main.go", "go.mod"):
        (folder / source).write_bytes((GO / f"{source}.txt").read_bytes())
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "judge", "."]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "judge"


def porcupine(
    program: Path, model: str, rows: list[list[int]], folder: Path, limit_s: float, times: int = 1
) -> str:
    """What Porcupine says of the rows, and its time for the check alone."""
    file = folder / "rows.txt"
    file.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    try:
        done = subprocess.run(
            [program, model, file, str(times)],
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES,) * 2),
        )
    except subprocess.TimeoutExpired:
        return f"> {limit_s:.0f} s"
    return done.stdout.strip() if done.returncode == 0 else "out of memory"


def logs(folder: Path, program: Path, limit_s: float) -> None:
    """The logs of etcd: small histories of five values, most of them illegal."""
    listed = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/anishathalye/porcupine"]
    module = subprocess.run(listed, cwd=folder, check=True, capture_output=True, text=True).stdout
    ours, theirs = [], []
    for path in sorted((Path(module.strip()) / "test_data" / "jepsen").glob("etcd_*.log")):
        columns = from_history(import_history(path).history)
        if not len(columns):
            continue
        ours.append(median(lambda: judged(columns, "cas", initial=None)[1], 21))  # noqa: B023 - at once
        said = porcupine(program, "cas", rows_of_columns(columns), folder, limit_s, 21)
        theirs.append(float(said.split()[1]))
    each = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    print(
        f"{len(ours)} logs of etcd: sum {sum(ours):.3f} s, Porcupine {sum(theirs):.3f} s"
        f" ({sum(theirs) / sum(ours):.1f}x); median {statistics.median(ours) * 1e6:.0f} us,"
        f" Porcupine {statistics.median(theirs) * 1e6:.0f} us; ratio on the median log {each:.2f}x",
        flush=True,
    )


def compare(sizes: list[int], folder: Path, limit_s: float) -> None:
    """One line a file: ours and theirs, measured one after the other."""
    program = build(folder)
    logs(folder, program, limit_s)
    for wanted in files():
        if wanted.operations in sizes:
            rows = history(wanted)
            columns = columns_of(rows)
            verdict, _ = judged(columns, wanted.model)
            ours = median(lambda: judged(columns, wanted.model)[1])  # noqa: B023 - at once
            times = 5 if wanted.operations <= 1_000 and wanted.keys > 1 else 1
            theirs = porcupine(program, wanted.model, rows, folder, limit_s, times)
            told = theirs.split()
            ratio = f"{float(told[1]) / ours:8.1f}x" if told[0] in ("Ok", "Illegal") else "-"
            print(
                f"{wanted.name:32} ours {verdict} {ours:9.6f} s   Porcupine {theirs:24} {ratio}",
                flush=True,
            )


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
