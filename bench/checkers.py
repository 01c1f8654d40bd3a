"""How long the checkers of the fencing workload take, by the size of the history.

    python bench/checkers.py [OPERATIONS ...]        (default: 10000 100000 1000000)

Prints a line for each size and kind of resource: the time to read the file, to pair its events and
to judge them, in seconds, and the time to judge an operation in microseconds; near-linear means
that this last number stays about the same.  An operation is an invocation with its completion, so
two lines of the file.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evidence import Evidence
from harness.history import read_history
from harness.op import Op, OpType, encode
from workloads.fencing import judge

MS = 1_000_000
LEASE_MS = 2000
ROUNDS = 10
SLEEPS_EVERY = 10


@dataclass
class Tape:
    """Writes events in order; every operation takes one millisecond."""

    now_ms: int = 0
    calls: int = 0
    lives: dict[int, int] = field(default_factory=dict)

    def event(self, worker: int, kind: OpType, f: str, key: str, fields: dict[str, Any]) -> bytes:
        """One line; a worker goes on under a new process number after an `info`."""
        life = self.lives.get(worker, 0)
        self.lives[worker] = life + (kind == "info")
        return encode(
            Op(
                process=worker + 100 * life,
                type=kind,
                f=f,
                key=key,
                time_ns=self.now_ms * MS,
                worker=f"w{worker}",
                **fields,
            )
        )

    def call(
        self,
        worker: int,
        f: str,
        key: str,
        asked: dict[str, Any],
        kind: OpType,
        got: dict[str, Any],
    ) -> Iterator[bytes]:
        """Two lines."""
        self.calls += 1
        yield self.event(worker, "invoke", f, key, asked)
        self.now_ms += 1
        yield self.event(worker, kind, f, key, got)


def lines(operations: int, *, fenced: bool) -> Iterator[bytes]:
    """One key whose owners follow each other.

    One in ten sleeps through its lease and writes ten times when the next owner is at work, and one
    write in a hundred gets no answer.
    """
    tape = Tape()
    lease = {"value": {"ttl_s": LEASE_MS / 1000}}
    shown: dict[str, Any] = {}
    number, token, sleeper = 0, 0, 0
    while tape.calls < operations:
        token += 1
        worker = token % 7
        yield from tape.call(worker, "acquire", "k0", lease, "ok", {**lease, "token": token})
        for turn in range(ROUNDS):
            yield from tape.call(worker, "read", "k0", {}, "ok", shown)
            asked = {"value": {"ask": True, "think_ms": 0}, "token": token}
            yield from tape.call(worker, "check", "k0", asked, "ok", {"value": {"held": True}})
            number += 1
            asked = {"value": f"v{number}", "token": token}
            lost = number % 100 == 0
            yield from tape.call(worker, "write", "k0", asked, "info" if lost else "ok", {})
            shown = shown if lost else asked
            if sleeper and turn:
                number += 1
                asked = {"value": f"v{number}", "token": sleeper}
                kind: OpType = "fail" if fenced else "ok"
                got = {"error": "fenced: lower"} if fenced else {}
                yield from tape.call(sleeper % 7, "write", "k0", asked, kind, got)
                shown = shown if fenced else asked
        sleeper = 0
        if token % SLEEPS_EVERY == 0:
            sleeper = token
            tape.now_ms += LEASE_MS + 1
        else:
            yield from tape.call(worker, "release", "k0", {"token": token}, "ok", {})


def measure(operations: int, *, fenced: bool) -> str:
    """Judge one history and return the line to print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        with path.open("wb") as file:
            file.writelines(lines(operations, fenced=fenced))
        start = time.perf_counter()
        history = read_history(path)
        read = time.perf_counter()
        calls = len(history.calls)
        paired = time.perf_counter()
        verdict = judge(Evidence(history, final_ns=history.end_ns))
        judged = time.perf_counter()
    kind = "fenced" if fenced else "unfenced"
    return (
        f"{calls:>9,} {kind:>8}  {read - start:7.2f} {paired - read:7.2f} {judged - paired:7.2f}"
        f" {(judged - paired) / calls * 1e6:9.1f}  {verdict.verdict},"
        f" {len(verdict.anomalies):,} findings, {verdict.stats['stale_attempts']:,} stale writes"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("operations", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    print("operations resource   read s  pair s judge s  us an op")
    for operations in parser.parse_args().operations:
        for fenced in (True, False):
            print(measure(operations, fenced=fenced), flush=True)


if __name__ == "__main__":
    main()
