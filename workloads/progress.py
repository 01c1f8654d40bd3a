"""`no-progress-after-heal`: all faults are gone, and the system still does nothing.

A partition that heals must end an outage.  After the final mark every contender tries again to take
and give back a lock, and everybody reads; within max(10 s, 5 TTL) at least one acquire or renewal,
and some read, must have succeeded.  The system has failed only if it was asked, if every fault was
seen to be gone, and if the final phase came to its end.
"""

from collections.abc import Iterable

from harness.evidence import Evidence
from harness.history import Call
from harness.verdict import Anomaly
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import count, instant, length

NAME = "no-progress-after-heal"
_BOUND_S = 10.0


def no_progress(evidence: Evidence, traces: Iterable[Trace]) -> Result:
    """Return the property of the run as a whole: one case, if the run can tell."""
    why = _cannot_tell(evidence)
    if why or evidence.final_ns is None:
        return found(NAME, 0, (), why)
    bound_s = _BOUND_S if evidence.spec is None else evidence.spec.progress_s
    traces = list(traces)
    asked = {
        "granted or renewed": _after(traces, ("acquire", "renew"), evidence.final_ns),
        "read": _after(traces, ("read",), evidence.final_ns),
    }
    until_ns = evidence.final_ns + round(bound_s * 1e9)
    lacks = [
        what
        for what, calls in asked.items()
        if calls and not any(_in_time(call, until_ns) for call in calls)
    ]
    cases = sum(bool(calls) for calls in asked.values())
    tried = sorted((c for what in lacks for c in asked[what]), key=lambda call: call.index)
    if not lacks:
        return found(NAME, cases, (), "" if cases else "nobody tried anything after the faults")
    said = tried[-1].error or "no answer"
    anomaly = Anomaly(
        name=NAME,
        sentence=(
            f"After all faults were healed, nothing was {' and nothing '.join(lacks)} from"
            f" {instant(evidence.final_ns)} on, for {length(bound_s * 1e9)}:"
            f" {count(len(tried), 'attempt')}, the last one ended with: {said}."
        ),
        ops=tuple(dict.fromkeys((tried[0].index, tried[-1].index))),
        time_ns=until_ns,
        size_s=bound_s,
        details={"final_ns": evidence.final_ns, "attempts": len(tried), "lacks": lacks},
    )
    return found(NAME, cases, (anomaly,))


def _cannot_tell(evidence: Evidence) -> str:
    windows = [window for window in evidence.windows if window.nodes]
    if not windows:
        return "there was no fault to heal"
    if evidence.final_ns is None or evidence.end_ns is None:
        return "the run did not come to its end"
    if any(window.off_ns is None for window in windows):
        return "a fault was not seen to be gone"
    faults = () if evidence.spec is None else evidence.spec.faults
    if any(fault.options.get("restart") is False for fault in faults):
        return "something was killed for good"
    return ""


def _after(traces: Iterable[Trace], operations: Iterable[str], final_ns: int) -> list[Call]:
    wanted = tuple(operations)
    calls = [call for trace in traces for f in wanted for call in trace.of(f)]
    return sorted((c for c in calls if c.call_ns >= final_ns), key=lambda call: call.index)


def _in_time(call: Call, until_ns: int) -> bool:
    """Whether it succeeded; reads may come after the last try to take a lock."""
    return call.outcome == "ok" and (call.f == "read" or call.call_ns <= until_ns)
