"""Random schedules of mixed faults against a correct pair: every finding is a false alarm.

    python bench/soak.py [RUNS] [PARALLEL] [FIRST_SEED]

Each seed gives one schedule of two to four faults that a correct lock service and a fenced store
must survive, and one run.  Faults that make a correct system wrong by rights (older data, damaged
files, foreign tokens, a monotonic clock that jumps back in the end) are left out.  Folders of runs
that are no plain pass or unknown are kept and named; the exit code is 1 when a run failed, came to
no judgement, left something behind, or has a fault without a grade.  What another fault of the same
schedule kept from being installed or seen (no process lives where one is killed) is listed.

200 runs, three at a time, take some 10 minutes on two idle cores.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.api import RunResult, execute
from harness.folder import RunFolder
from harness.rng import below, stream, uniform
from harness.runfile import from_values
from harness.verdict import Reason

OUT = Path("soak-runs")
TTL_S = 0.5
TIME_S = 6.0
WORKERS = ("holder", "worker:1", "worker:2", "worker:3")
SERVERS = ("lock1", "store1")
# Without a sleeping owner nothing could be refused, and a pass would mean nothing.
SLEEPER = "pause:who=holder,at=before-write,for=3leases"
# What may happen, to whom, at most how long in leases.
KINDS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("pause", WORKERS, 3.0),
    ("pause", SERVERS, 1.0),
    ("kill", WORKERS, 2.0),
    ("kill", SERVERS, 1.0),
    ("partition:shape=isolate", (*WORKERS, *SERVERS), 3.0),
    ("partition:shape=worker-lock", WORKERS, 3.0),
    ("partition:shape=worker-store", WORKERS, 2.0),
    ("partition:shape=one-way-in", WORKERS, 2.0),
    ("link:delay=20ms,jitter=10ms,loss=0.02", (*WORKERS, *SERVERS), 4.0),
    ("link:duplicate=0.2,reorder=0.2", (*WORKERS, *SERVERS), 4.0),
    ("clock:clock=wall,jump=1h", (*WORKERS, *SERVERS), 4.0),
    ("clock:clock=wall,jump=-1h", (*WORKERS, *SERVERS), 4.0),
    ("disk:what=full", SERVERS, 1.0),
    ("disk:what=read-only", SERVERS, 1.0),
    ("kill:power=true", SERVERS, 1.0),
    ("message:what=lose-reply,part=lock", WORKERS, 4.0),
    ("message:what=reset-after-delivery,part=store", WORKERS, 4.0),
    ("authority:what=guessed+old", ("holder",), 1.0),
)
# A run in which too little happened, or a fault came to nothing, shows nothing wrong.
EXPECTED = (Reason.VACUOUS, Reason.FAULT_NOT_EFFECTIVE)
GOOD = "installed"


def schedule(seed: int) -> list[str]:
    """Return the faults of a seed: a pure function."""
    start = stream(seed, "soak")
    faults = [SLEEPER]
    for n in range(2 + below(start, 0, 3)):
        draw = 10 * (n + 1)
        kind, who, longest = KINDS[below(start, draw, len(KINDS))]
        name = who[below(start, draw + 1, len(who))]
        length = uniform(start, draw + 2, 0.4, longest)
        head = kind if ":" in kind else f"{kind}:"
        comma = "," if ":" in kind else ""
        when = f"at={uniform(start, draw + 3, 0.5, TIME_S - 0.5 - longest * TTL_S):.3f}s"
        if name.startswith(("holder", "worker")) and below(start, draw + 4, 2):
            when = ("at=before-write", "at=lease-checked", "at=renewing")[below(start, draw + 5, 3)]
            when += ",count=2"
        faults.append(f"{head}{comma}who={name},{when},for={length:.2f}leases")
    return faults


def soak(seed: int) -> RunResult:
    """Run the schedule of a seed."""
    spec = from_values(
        {
            "lock": "atlasmart",
            "store": "atlasmart[fence=checked]",
            "ttl": f"{TTL_S}s",
            "time": f"{TIME_S}s",
            "op_timeout": "300ms",
            "faults": schedule(seed),
            "seed": seed,
        }
    )
    return execute(spec, OUT, quiet=True)


def trouble(result: RunResult, spec_faults: Sequence[str]) -> list[str]:
    """Return what is wrong with a run of these faults, nothing for a plain pass or unknown."""
    if result.results is None or result.folder is None:
        return [f"no verdict: {result.error}"]
    found = [anomaly.sentence for anomaly in result.findings]
    found += [f"left over: {text}" for text in result.results.leftover]
    found += [f"error: {result.results.error}"] if result.results.error else []
    found += [u.text for u in result.results.verdict.unknown if u.reason not in EXPECTED]
    windows = RunFolder(result.folder).windows()
    found += [f"no reason: {w.kind} {w.grade}" for w in windows if not (w.grade == GOOD or w.text)]
    missing = set(range(len(spec_faults))) - {window.spec for window in windows}
    found += [f"not graded: {spec_faults[n]}" for n in sorted(missing)]
    return found


def main() -> int:
    """Soak and print."""
    numbers = [int(word) for word in sys.argv[1:]]
    runs, parallel, first = numbers + [200, 3, 1][len(numbers) :]
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    grades: Counter[str] = Counter()
    texts: list[str] = []
    bad = 0
    with ThreadPoolExecutor(parallel) as pool:
        for seed, result in enumerate(pool.map(soak, range(first, first + runs)), start=first):
            verdicts[result.verdict] += 1
            found = trouble(result, schedule(seed))
            for text in found:
                print(f"seed {seed}: {text}\n  {result.folder}\n  {schedule(seed)}", flush=True)
            bad += bool(found)
            if result.results is not None and result.folder is not None:
                reasons.update(u.reason for u in result.results.verdict.unknown)
                windows = RunFolder(result.folder).windows()
                grades.update(f"{w.kind} {w.grade}" for w in windows)
                texts += [f"{seed}: {w.kind}: {w.text}" for w in windows if w.text]
            if not found and result.folder is not None:
                shutil.rmtree(result.folder)
    print(f"{runs} runs: {dict(verdicts)}; {bad} with trouble")
    print(f"unknown because: { {str(reason): n for reason, n in reasons.items()} }")
    for grade, n in sorted(grades.items()):
        print(f"  {grade}: {n}")
    print("not installed:", *texts, sep="\n  ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
