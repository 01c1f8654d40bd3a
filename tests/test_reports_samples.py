"""Runs as they really look, made by hand: a holder that sleeps, with and without a fence.

The other tests of the reports render these.  Three workers share one lock of 2 s; `w1` is frozen
between its lease check and its write for 5 s, `w2` takes over, `w1` wakes and writes.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.evidence import Evidence, Problem
from harness.history import History
from harness.note import Note
from harness.op import Op, OpType
from harness.results import Results
from harness.spec import FaultSpec, RunSpec, TargetSpec
from harness.units import Duration
from harness.verdict import Anomaly, Outcome, Property, Reason, Unknown, Verdict
from harness.window import Proof, Window

KEY = "k0"
WORKERS = ("w1", "w2", "w3", "r1")
NOT_OWNER = "its lease ended by the worker's own clock"


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


@dataclass
class Tape:
    """Records calls in any order and hands out their op numbers once all are there."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)

    def call(self, worker: str, f: str, start_s: float, end_s: float | None, **more: Any) -> int:
        """Record a call; `more`: key, value, token asked for, and type, result, got, error."""
        self.calls.append({"worker": worker, "f": f, "start": start_s, "end": end_s, **more})
        return len(self.calls) - 1

    def believe(self, worker: str, time_s: float, *, holds: bool, token: int, why: str) -> None:
        """Record that a worker says what it believes."""
        left_s = 2.0 if holds else None
        self.notes.append(
            {"time_ns": ns(time_s), "worker": worker, "kind": "belief", "key": KEY, "token": token}
            | {"holds": holds, "left_s": left_s, "why": why}
        )

    def ops(self) -> tuple[list[Op], dict[int, int], dict[int, int]]:
        """The ops in order of time, and where each call's invocation and completion ended up."""
        events: list[tuple[float, int, int, OpType]] = []
        for n, call in enumerate(self.calls):
            events.append((call["start"], 0, n, "invoke"))
            if call["end"] is not None:
                events.append((call["end"], 1, n, call.get("type", "ok")))
        events.sort()
        process: dict[tuple[str, bool], int] = {}
        ops: list[Op] = []
        invoked: dict[int, int] = {}
        completed: dict[int, int] = {}
        for time_s, _, n, kind in events:
            call = self.calls[n]
            lane = (call["worker"], call["f"] == "renew")
            first = WORKERS.index(call["worker"]) + (len(WORKERS) if lane[1] else 0)
            number = process.setdefault(lane, first)
            begins = kind == "invoke"
            (invoked if begins else completed)[n] = len(ops)
            ops.append(
                Op(
                    process=number,
                    type=kind,
                    f=call["f"],
                    key=call.get("key", KEY),
                    value=call.get("value") if begins else call.get("result"),
                    token=call.get("token") if begins else call.get("got"),
                    time_ns=ns(time_s),
                    error=None if begins else call.get("error"),
                    worker=call["worker"],
                )
            )
            if kind == "info":
                process[lane] = number + 2 * len(WORKERS)
        return ops, invoked, completed


def rounds(tape: Tape, worker: str, token: int, *, start_s: float, end_s: float, first: int) -> int:
    """The owner's rounds read, check, write until `end_s`; returns the next number of a value."""
    now_s, number = start_s, first
    while now_s + 0.12 < end_s:
        tape.call(worker, "read", now_s, now_s + 0.004, result=f"{worker}-{number - 1}", got=token)
        ask = {"ask": True, "think_ms": 20}
        tape.call(
            worker,
            "check",
            now_s + 0.006,
            now_s + 0.03,
            value=ask,
            token=token,
            result={"held": True},
        )
        value = f"{worker}-{number}"
        tape.call(worker, "write", now_s + 0.032, now_s + 0.04, value=value, token=token)
        now_s, number = now_s + 0.13, number + 1
    return number


def hold(
    tape: Tape, worker: str, token: int, start_s: float, end_s: float, *, first: int = 1
) -> int:
    """One undisturbed hold from grant to release; returns the call of its acquire."""
    got = tape.call(
        worker,
        "acquire",
        start_s,
        start_s + 0.012,
        value={"ttl_s": 2.0},
        got=token,
        result={"ttl_s": 2.0},
    )
    tape.believe(worker, start_s + 0.013, holds=True, token=token, why="granted")
    rounds(tape, worker, token, start_s=start_s + 0.03, end_s=end_s - 0.02, first=first)
    renew_s = start_s + 0.67
    while renew_s < end_s - 0.1:
        tape.call(worker, "renew", renew_s, renew_s + 0.009, token=token)
        tape.believe(worker, renew_s + 0.01, holds=True, token=token, why="renewed")
        renew_s += 0.67
    tape.call(worker, "release", end_s - 0.015, end_s - 0.005, token=token)
    tape.believe(worker, end_s - 0.016, holds=False, token=token, why="released")
    return got


@dataclass
class Sleep:
    """One pause of `w1` and the takeover by `w2`; the fields are calls on the tape."""

    stale: int
    newer: int
    late: int
    first: int
    check: int
    on_s: float
    heal_s: float


def wait(tape: Tape, start_s: float) -> None:
    """`w2` and `w3` try to get the lock while it is held."""
    for worker, first_s in (("w2", start_s + 0.1), ("w3", start_s + 0.15)):
        try_s, ask = first_s, {"ttl_s": 2.0}
        while try_s < start_s + 2.0:
            end_s = try_s + 0.006
            tape.call(worker, "acquire", try_s, end_s, value=ask, type="fail", error="held")
            try_s += 0.25


def wake(tape: Tape, heal_s: float, token: int, value: str, *, fenced: bool) -> int:
    """`w1` writes what it was about to write, and then learns; returns the call of its write."""
    own = [c for c in tape.calls if c["f"] == "write" and c["worker"] == "w2"]
    under = [c for c in own if c["start"] < heal_s][-1]
    late = tape.call(
        "w1",
        "write",
        heal_s + 0.006,
        heal_s + 0.014,
        value=value,
        token=token,
        type="fail" if fenced else "ok",
        error=f"fenced: the highest token is {token + 1}" if fenced else None,
        result=None if fenced else {"over": {"value": under["value"], "token": token + 1}},
    )
    lost = {"token": token, "type": "fail", "error": "not-holder: gone"}
    tape.call("w1", "renew", heal_s + 0.02, heal_s + 0.03, **lost)
    tape.believe("w1", heal_s + 0.031, holds=False, token=token, why=NOT_OWNER)
    return late


def sleep(tape: Tape, start_s: float, token: int, *, fenced: bool, number: int = 1) -> Sleep:
    """`w1` is frozen before its write; `w2` takes over, writes, and goes on for a while."""
    lease = {"ttl_s": 2.0}
    got = {"value": lease, "result": lease, "got": token}
    stale = tape.call("w1", "acquire", start_s, start_s + 0.012, **got)
    tape.believe("w1", start_s + 0.013, holds=True, token=token, why="granted")
    number = rounds(tape, "w1", token, start_s=start_s + 0.03, end_s=start_s + 0.45, first=number)
    on_s, heal_s = start_s + 0.481, start_s + 5.485
    asked = {"value": {"ask": True, "think_ms": 20}, "token": token, "result": {"held": True}}
    check = tape.call("w1", "check", on_s - 0.025, heal_s + 0.002, **asked)
    tape.notes.append(
        {"time_ns": ns(on_s - 0.001), "worker": "w1", "kind": "phase", "phase": "lease-checked"}
        | {"key": KEY, "token": token, "op": ("call", check), "stopped": True}
    )
    wait(tape, start_s)
    newer = hold(tape, "w2", token + 1, start_s + 2.08, start_s + 6.1, first=number + 20)
    first = next(
        n for n, c in enumerate(tape.calls) if c["f"] == "write" and c.get("token") == token + 1
    )
    late = wake(tape, heal_s, token, f"w1-{number}", fenced=fenced)
    return Sleep(stale, newer, late, first, check, on_s, heal_s)


def spec(store: str) -> RunSpec:
    pause = FaultSpec(
        "pause", "holder", Duration(2.5, in_leases=True), phase="lease-checked", count=3
    )
    return RunSpec(TargetSpec("etcd"), TargetSpec(store), faults=(pause,), seed=7)


def window(one: Sleep, op: int) -> Window:
    return Window(
        spec=0,
        kind="pause",
        who="holder",
        nodes=("w1",),
        at="lease-checked",
        op=op,
        requested_ns=ns(one.on_s - 0.0005),
        on_ns=ns(one.on_s),
        heal_ns=ns(one.heal_s),
        off_ns=ns(one.heal_s + 0.001),
        grade="installed",
        on=Proof(holds=True, text="3 of 3 threads in state T (/proc)"),
        off=Proof(holds=True, text="3 of 3 threads go on"),
    )


def anomaly(
    one: Sleep, invoked: dict[int, int], completed: dict[int, int], ops: list[Op]
) -> Anomaly:
    late = ops[invoked[one.late]]
    end_ns = ops[invoked[one.stale]].time_ns + ns(2.0)
    done_ns = ops[completed[one.late]].time_ns
    size_s = round((done_ns - end_ns) / 1e9, 3)
    assert late.token is not None
    return Anomaly(
        name="stale-owner-write",
        sentence=(
            f"w1 wrote “{late.value}” with token {late.token} after the store had accepted token "
            f"{late.token + 1} of w2, {size_s:g} s after its own lease had ended."
        ),
        ops=(
            invoked[one.stale],
            invoked[one.newer],
            invoked[one.first],
            completed[one.first],
            invoked[one.late],
            completed[one.late],
        ),
        time_ns=done_ns,
        key=KEY,
        size_s=size_s,
        details={
            "stale_grant": invoked[one.stale],
            "newer_grant": invoked[one.newer],
            "stale_write": invoked[one.late],
            "newer_write": invoked[one.first],
            "lease_end_ns": end_ns,
            "window_s": size_s,
            "worker": "w1",
            "newer_worker": "w2",
            "lost": [],
            "proof": "over",
        },
    )


def lost_update(stale: Anomaly, lost: int) -> Anomaly:
    return Anomaly(
        name="lost-update",
        sentence="An acknowledged write of w2 was overwritten by the old owner w1.",
        ops=(lost, stale.details["stale_write"]),
        time_ns=stale.time_ns,
        key=KEY,
        details={**stale.details, "lost": [lost]},
    )


def record(
    tape: Tape, sleeps: list[Sleep], *, fence: str, store: str
) -> tuple[Evidence, list[Anomaly]]:
    """The evidence of a tape, and what a checker would say about its sleeps."""
    ops, invoked, completed = tape.ops()
    notes = [
        Note(**{**note, "op": invoked[note["op"][1]] if "op" in note else None})
        for note in sorted(tape.notes, key=lambda note: note["time_ns"])
    ]
    final = [op.time_ns for op in ops if op.f == "read" and op.worker == "r1"]
    evidence = Evidence(
        history=History(ops),
        spec=spec(store),
        notes=notes,
        windows=[window(one, invoked[one.check]) for one in sleeps],
        fence=fence,
        final_ns=final[0] if final else None,
        facts={"etcd": "3.5.1", "kernel": "6.1.0", "python": "3.11.2", "vanwinkle": "0.1.0"},
    )
    return evidence, [anomaly(one, invoked, completed, ops) for one in sleeps]


def results(verdict: Verdict, duration_s: float = 15.4, **more: Any) -> Results:
    return Results(
        run="20261102T101500Z-etcd-valkey-fencing-7",
        command="winkle run --lock etcd --store 'valkey[fenced=false]' --workload fencing "
        "--fault pause:who=holder,at=lease-checked,for=2.5leases --workers 3 --ttl 2s --seed 7",
        began="2026-11-02T10:15:00Z",
        duration_s=duration_s,
        verdict=verdict,
        **more,
    )


def properties(broken: int, outcome: Outcome = "pass") -> tuple[Property, ...]:
    first: Outcome = "fail" if broken else outcome
    return (
        Property(name="stale-owner-write", verdict=first, checked=214, broken=broken),
        Property(name="lost-update", verdict=first, checked=214, broken=broken),
        Property(name="duplicate-grant", verdict=outcome, checked=9, broken=0),
        Property(name="fence-regression", verdict=outcome, checked=9, broken=0),
        Property(
            name="stale-read", verdict="unknown", checked=0, broken=0, note="no read was certain"
        ),
    )


MARGINS = {
    "renewal_margin_s": {"min": 1.301, "median": 1.32},
    "takeover_s": {"min": 0.08, "max": 0.094},
    "refused_tokens": 0,
    "stale_client_share": 0.333,
    "lost_share": 0.014,
}


def failing(sleeps: int = 3) -> tuple[Evidence, Results]:
    """Case C32 against a store without a fence."""
    tape = Tape()
    hold(tape, "w3", 32, 0.1, 0.95)
    tape.call("w3", "acquire", 0.96, 0.99, value={"ttl_s": 2.0}, type="info", error="timed out")
    found = []
    for i in range(sleeps):
        found.append(sleep(tape, 1.02 + 7 * i, 33 + 3 * i, fenced=False, number=1 + 30 * i))
        hold(tape, "w3", 35 + 3 * i, 7.2 + 7 * i, 7.9 + 7 * i, first=100 + 10 * i)
    end_s = 8.5 + 7 * (sleeps - 1)
    last = [c for c in tape.calls if c["f"] == "write"][-1]
    for worker in ("r1", "w1", "w2", "w3"):
        tape.call(worker, "read", end_s, end_s + 0.003, result=last["value"], got=last.get("token"))
        end_s += 0.004
    evidence, stale = record(tape, found, fence="none", store="valkey")
    anomalies = [*stale, *(lost_update(a, a.details["newer_write"]) for a in stale)]
    verdict = Verdict(
        verdict="fail",
        headline=(
            "w1 changed k0 although its lease had ended 3.49 s before, and the store took it: "
            "a write of the new owner w2 is lost."
        ),
        anomalies=tuple(anomalies),
        properties=properties(len(stale)),
        margins=MARGINS,
        stats={"takeovers": len(stale), "stale_writes_attempted": len(stale)},
        notes=("w1 and w2 both took themselves for the owner for 3.5 s in all.",),
    )
    return evidence, results(verdict, end_s, first_finding_s=6.52)


def passing() -> tuple[Evidence, Results]:
    """The same sleep against a store that refuses lower tokens."""
    tape = Tape()
    hold(tape, "w3", 32, 0.1, 0.95)
    one = sleep(tape, 1.02, 33, fenced=True)
    hold(tape, "w3", 35, 7.2, 7.9, first=100)
    tape.call("r1", "read", 15.2, 15.203, result="w3-104", got=35)
    evidence, _ = record(tape, [one], fence="checked", store="valkey[fenced=true]")
    verdict = Verdict(
        verdict="pass",
        headline="A frozen owner woke up and wrote too late 1 time; the store refused it.",
        properties=properties(0),
        margins={**MARGINS, "refused_tokens": 1, "stale_client_share": 0.111, "lost_share": 0.0},
    )
    return evidence, results(verdict)


def undecided() -> tuple[Evidence, Results]:
    """A run in which the pause came too late to put anything at stake."""
    tape = Tape()
    hold(tape, "w3", 32, 0.1, 2.95)
    hold(tape, "w1", 33, 3.1, 5.9)
    tape.call("w2", "write", 6.0, 6.9, value="w2-1", token=34, type="info", error="timed out")
    evidence, _ = record(tape, [], fence="none", store="valkey")
    missed = Window(
        spec=0,
        kind="pause",
        who="holder",
        nodes=(),
        at="lease-checked",
        requested_ns=0,
        grade="not-effective",
        text="never triggered: no holder came to lease-checked in time",
    )
    evidence = Evidence(
        history=evidence.history,
        spec=evidence.spec,
        notes=evidence.notes,
        windows=[missed],
        fence="none",
        problems=[Problem("the worker stopped answering", "w2", ns(6.9))],
    )
    verdict = Verdict(
        verdict="unknown",
        headline="This run cannot be judged: no owner was out while another took over.",
        unknown=(
            Unknown(reason=Reason.VACUOUS, text="0 takeovers while an old owner was out, 1 needed"),
            Unknown(
                reason=Reason.FAULT_NOT_EFFECTIVE,
                text="pause:who=holder,at=lease-checked,for=2.5leases was never in force",
            ),
        ),
        properties=properties(0, "unknown"),
    )
    return evidence, results(
        verdict, 7.0, leftover=("1 process of w2 is still stopped (pid 4711)",)
    )


@pytest.mark.parametrize("sample", [failing, passing, undecided])
def test_the_samples_are_histories(sample: Any) -> None:
    evidence, _ = sample()
    assert len(evidence.history.calls) > 20
    assert all(window.grade for window in evidence.windows)
