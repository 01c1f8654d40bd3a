"""Porcupine beside us on the same rows, in pairs: ours, theirs, ours, theirs; all in CPU time.

A small Go program is built in a temporary folder; its module comes from the Go module proxy.  What
Porcupine does not finish within the limit, or within 10 GB, is shown as such: then the ratio is one
that it does not reach.  A verdict that differs from ours ends the measurement.
"""

import resource
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.generate import Row, Wanted, columns_of, files, history, rows_of_columns
from harness.checking.columns import Columns, from_history
from harness.importing import load as import_history

MEMORY_BYTES = 10 << 30
GO = Path(__file__).with_name("porcupine")
READ_S = 60  # for the rows, beside the limit of the check
ROUNDS = 3
WORDS = {"Ok": "pass", "Illegal": "fail"}

Judged = Callable[..., tuple[str, float]]
"""Columns, model and keywords to the verdict and seconds of CPU time."""


@dataclass(frozen=True)
class Porcupine:
    """The program, and how long a check may take in seconds."""

    folder: Path
    limit_s: float

    def build(self) -> None:
        """Build the program."""
        for source in ("main.go", "go.mod"):
            (self.folder / source).write_bytes((GO / f"{source}.txt").read_bytes())
        for command in (["go", "mod", "tidy"], ["go", "build", "-o", "judge", "."]):
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def tests(self) -> Path:
        """The histories of Porcupine's own tests."""
        listed = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/anishathalye/porcupine"]
        said = subprocess.run(listed, cwd=self.folder, check=True, capture_output=True, text=True)
        return Path(said.stdout.strip()) / "test_data"

    def write(self, rows: list[Row]) -> None:
        """Give it the rows to judge."""
        np.array(rows, np.int64).tofile(self.folder / "rows")

    def judge(self, model: str, times: int) -> tuple[str, float]:
        """What it says of the rows, and the median time of a check alone in seconds."""
        limit = [str(times), f"{self.limit_s:g}"]
        try:
            done = subprocess.run(
                [self.folder / "judge", model, self.folder / "rows", *limit],
                capture_output=True,
                text=True,
                check=False,
                timeout=self.limit_s * times + READ_S,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES,) * 2),
            )
        except subprocess.TimeoutExpired:
            return "no end", self.limit_s
        if done.returncode:
            return "out of memory", self.limit_s
        verdict, seconds, _ = done.stdout.split()
        return (verdict, float(seconds)) if verdict in WORDS else ("no end", self.limit_s)


@dataclass(frozen=True)
class Pair:
    """Both times in seconds; `ended`: whether Porcupine had an answer, else `said` is why not."""

    ours_s: float
    theirs_s: float
    said: str

    @property
    def ended(self) -> bool:
        """Whether Porcupine had an answer."""
        return self.said in WORDS

    @property
    def ratio(self) -> float:
        """How many times as fast we are, at least."""
        return self.theirs_s / self.ours_s

    def __str__(self) -> str:
        theirs = f"{self.theirs_s * 1e3:10.3f} ms" if self.ended else f"{self.said:>13}"
        least = " " if self.ended else ">"
        return f"ours {self.ours_s * 1e3:9.3f} ms  Porcupine {theirs}  {least}{self.ratio:9.1f}x"


def pair(
    judged: Judged,
    porcupine: Porcupine,
    columns: Columns,
    rows: list[Row],
    model: str,
    **how: object,
) -> Pair:
    """Measure one history on both sides, in turns while that takes no time."""
    porcupine.write(rows)
    verdict, first_s = judged(columns, model, **how)
    said, theirs_s = porcupine.judge(model, 1)
    assert said not in WORDS or WORDS[said] == verdict, (model, verdict, said)
    times = 21 if max(first_s, theirs_s) < 0.01 else 5 if max(first_s, theirs_s) < 0.3 else 1
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(statistics.median(judged(columns, model, **how)[1] for _ in range(times)))
        if theirs_s < 1:
            theirs.append(porcupine.judge(model, times)[1])
    return Pair(statistics.median(ours), statistics.median(theirs or [theirs_s]), said)


def logs(judged: Judged, porcupine: Porcupine) -> None:
    """The logs of etcd: small histories of five values, most of them illegal."""
    pairs = []
    for path in sorted((porcupine.tests() / "jepsen").glob("etcd_*.log")):
        columns = from_history(import_history(path).history)
        if len(columns):
            rows = rows_of_columns(columns)
            pairs.append(pair(judged, porcupine, columns, rows, "cas", initial=None))
    ours, theirs = [p.ours_s for p in pairs], [p.theirs_s for p in pairs]
    ratios = [p.ratio for p in pairs]
    print(
        f"{len(pairs)} logs of etcd: sum {sum(ours):.3f} s, Porcupine {sum(theirs):.3f} s"
        f" ({sum(theirs) / sum(ours):.1f}x); median {statistics.median(ours) * 1e6:.0f} us,"
        f" Porcupine {statistics.median(theirs) * 1e6:.0f} us; ratio on the median log"
        f" {statistics.median(ratios):.2f}x, slower on {sum(r < 1 for r in ratios)}",
        flush=True,
    )


def kept(judged: Judged, porcupine: Porcupine) -> None:
    """The logs of a key-value store with appends, ours alone."""
    for path in sorted((porcupine.tests() / "kv").glob("*.txt")):
        columns = from_history(import_history(path).history)
        took = statistics.median(judged(columns, "kv", initial="")[1] for _ in range(5))
        print(f"kv {path.stem:8} {judged(columns, 'kv', initial='')[0]} {took * 1e3:8.2f} ms")


def repeated(judged: Judged, porcupine: Porcupine, sizes: list[int]) -> None:
    """One line a share of unknown outcomes: five values, so the search."""
    for operations in sorted({1_000, 10_000} & set(sizes)):
        for crash in (0.0, 0.01, 0.1):
            rows = history(Wanted("cas", operations, crash, values=5, clients=5))
            found = pair(judged, porcupine, columns_of(rows), rows, "cas")
            print(f"repeated {operations:7,} {crash:4.0%} {found}", flush=True)


def generated(judged: Judged, porcupine: Porcupine, sizes: list[int]) -> None:
    """One line a file of the generator, and the least and the median ratio."""
    pairs = {}
    for wanted in files():
        if wanted.operations in sizes:
            rows = history(wanted)
            found = pair(judged, porcupine, columns_of(rows), rows, wanted.model)
            pairs[wanted.name] = found
            print(f"{wanted.name:32} {found}", flush=True)
    for text, ended in (("where Porcupine ends", True), ("where it does not", False)):
        ratios = {name: p.ratio for name, p in pairs.items() if p.ended == ended}
        if ratios:
            least = min(ratios, key=lambda name: ratios[name])
            print(
                f"{len(ratios)} files {text}: at least {ratios[least]:.1f}x ({least}), median"
                f" {statistics.median(ratios.values()):.1f}x,"
                f" under 3x: {sum(ratio < 3 for ratio in ratios.values())}",
                flush=True,
            )


def compare(judged: Judged, sizes: list[int], folder: Path, limit_s: float) -> None:
    """Print all of it."""
    porcupine = Porcupine(folder, limit_s)
    porcupine.build()
    logs(judged, porcupine)
    kept(judged, porcupine)
    repeated(judged, porcupine, sizes)
    generated(judged, porcupine, sizes)
