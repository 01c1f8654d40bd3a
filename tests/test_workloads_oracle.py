"""The order checker against the definition, on thousands of tiny histories.

Without a store log the checker states exactly this.  (1) It finds something wrong among writes and
reads if and only if no order of the accepted writes and the reads is legal for a fenced register,
or a write says itself that it overwrote a higher token.  (2) A write is stale for certain if and
only if it alone contradicts some newer write with its sights, or says so itself.  (3) A late sight
is a stale read if it contradicts a newer write that was asked for after the old one was answered;
if there are only newer writes that were under way together with it, both readings are named.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.history import Call
from tests.builders import Script
from tests.oracle import Step, possible, sight_steps, steps, write_step
from workloads._clusters import gather
from workloads._owners import Order, judge_order
from workloads._storelog import KeyLog
from workloads._trace import Trace, read_traces
from workloads.fencing import judge
from workloads.lost import losses

pytestmark = pytest.mark.once
OF_THE_ORDER = {
    "stale-owner-write",
    "forgotten-fence",
    "stale-read",
    "lost-ack",
    "phantom-read",
    "aborted-read",
}

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def histories(draw: Draw, *, workers: str = "abc") -> Script:
    """Up to seven reads and writes of one key, with ties, refusals and unknown outcomes."""
    script = Script()
    size = draw(st.integers(2, 7))
    highest = draw(st.integers(1, 3))
    tokens = {f"v{i}": draw(st.integers(1, highest)) for i in range(size)}
    values = st.sampled_from([*tokens, None])
    for i in range(size):
        worker = draw(st.sampled_from(workers))
        at = draw(st.integers(0, 9))
        ret = at + draw(st.integers(0, 5))
        if draw(st.booleans()):
            seen = draw(values)
            script.read(worker, at, ret, seen, tokens.get(seen) if draw(st.booleans()) else None)
            continue
        outcome = draw(st.sampled_from(["ok", "ok", "ok", "info", "open", "fail"]))
        over = draw(st.sampled_from(list(tokens))) if draw(st.integers(0, 4)) == 0 else None
        script.write(
            worker,
            f"v{i}",
            tokens[f"v{i}"],
            at,
            None if outcome == "open" else ret,
            over=None if over in (None, f"v{i}") else (over, tokens[over]),
            info=outcome == "info",
            fail="fenced: x" if outcome == "fail" else None,
        )
    return script


def only_trace(script: Script) -> Trace | None:
    book = read_traces(script.history())
    assert not book.unknown
    return book.traces[0] if book.traces else None


def says_it_itself(calls: Sequence[Call]) -> set[int]:
    """The writes whose answer names a higher token, of a write that may have taken effect."""
    written = {c.value: c for c in calls if c.f == "write" and c.outcome != "fail"}
    found = set()
    for call in calls:
        for sight in sight_steps(call) if call.f == "write" else []:
            source = written.get(sight.value)
            if source is not None and call.ret_ns is not None and call.ret_ns >= source.call_ns:
                assert source.token is not None
                assert call.token is not None
                if source.token > call.token:
                    found.add(call.index)
    return found


@settings(max_examples=4000)
@given(histories())
def test_something_is_found_exactly_when_no_order_is_legal(script: Script) -> None:
    calls = script.calls()
    found = {anomaly.name for anomaly in judge(script.evidence()).anomalies} & OF_THE_ORDER
    legal = possible(steps(calls)) and not says_it_itself(calls)
    assert (not found) == legal


def order_of(trace: Trace) -> Order:
    return judge_order(trace, gather(trace, frozenset()), KeyLog(), fence="none")


@settings(max_examples=4000)
@given(histories())
def test_each_finding_has_the_name_that_pairs_of_clusters_prove(script: Script) -> None:
    trace = only_trace(script)
    if trace is None:
        return
    groups = clusters(script.calls())
    order = order_of(trace)
    own_word = says_it_itself(script.calls())
    certain, doubtful, late = set(own_word), set(), set()
    for index, (write, sights) in groups.items():
        newer = [g for g in groups.values() if (g[0].token or 0) > (write.token or 0)]
        alone = write_step(write, must=True)
        if any(not possible([alone, *whole(group)]) for group in newer):
            certain.add(index)
        if index in certain:
            continue
        clashing = [g for g in newer if not possible([alone, *sights, *whole(g)])]
        if any(write.precedes(group[0]) for group in clashing):
            late.add(index)
        elif clashing:
            doubtful.add(index)
    assert {s.write.call.index for s in order.stale if s.certain} == certain
    assert {s.write.call.index for s in order.stale if not s.certain} == doubtful
    assert {s.old.write.call.index for s in order.late if s.old.write is not None} == late


Group = tuple[Call, list[Step]]


def clusters(calls: Sequence[Call]) -> dict[int, Group]:
    """Each write that certainly took effect, with the sights of it that can be meant."""
    found: dict[int, Group] = {}
    for write in calls:
        if write.f != "write" or write.outcome == "fail":
            continue
        sights = [
            sight
            for call in calls
            for sight in sight_steps(call)
            if sight.value == write.value and sight.ret >= write.call_ns
        ]
        if write.outcome == "ok" or sights:
            found[write.index] = (write, sights)
    return found


def whole(group: Group) -> list[Step]:
    write, sights = group
    return [write_step(write, must=True), *sights]


@settings(max_examples=2000)
@given(histories(workers="ab"))
def test_lost_writes_are_those_of_the_definition(script: Script) -> None:
    trace = only_trace(script)
    if trace is None:
        return
    seen = gather(trace, frozenset())
    order = order_of(trace)
    by_value = {write.call.value: write for write in trace.writes}
    expected: dict[int, int] = {}
    for stale in sorted(order.stale, key=lambda s: s.write.call.call_ns):
        call = stale.write.call
        reads = [
            r
            for r in trace.of("read")
            if r.worker == call.worker and r.ret_index is not None and r.ret_index < call.index
        ]
        base = max(reads, key=lambda r: r.ret_index or 0, default=None)
        base_ns = -1 if base is None or base.ret_ns is None else base.ret_ns
        source = by_value.get(base.result) if base is not None else None
        for write in trace.writes:
            other = write.call
            if not stale.certain or other.outcome != "ok" or write.level <= stale.write.level:
                continue
            assert other.ret_ns is not None
            saw = source is not None and (source.level, source.call.index) >= (
                write.level,
                other.index,
            )
            over = seen.over.get(call.index)
            covered = over is not None and over.write is write
            if not saw and (base_ns < other.ret_ns < call.call_ns or covered):
                expected.setdefault(other.index, call.index)
    lost = losses(trace, seen, order.stale)
    assert {c.index: index for index, gone in lost.items() for c in gone} == expected
