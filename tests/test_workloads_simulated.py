"""Simulated runs whose truth is known: no false alarm, and no stale write missed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.evidence import Evidence
from harness.target import Accept
from harness.verdict import Verdict
from tests.simulation import simulate
from workloads.fencing import judge

TROUBLES = (0.0, 0.02, 0.1)


def run(seed: int, **rest: Any) -> Evidence:
    return simulate(seed, trouble=TROUBLES[seed % 3], keys=1 + seed % 3, time_s=12.0, **rest)


def stale_values(evidence: Evidence, verdict: Verdict) -> set[str]:
    ops = evidence.history.ops
    return {
        ops[anomaly.details["stale_write"]].value
        for anomaly in verdict.anomalies
        if anomaly.name == "stale-owner-write"
    }


def inverted(log: Sequence[Accept]) -> set[str]:
    """The truth: values accepted after a higher token of the same key."""
    highest: dict[str, int] = {}
    found = set()
    for entry in log:
        assert entry.token is not None
        if entry.token < highest.get(entry.key, 0):
            found.add(entry.value)
        highest[entry.key] = max(entry.token, highest.get(entry.key, 0))
    return found


@pytest.mark.parametrize(("fence", "tokens"), [("checked", True), ("guarded", True)])
@pytest.mark.parametrize("block", range(4))
def test_a_correct_pair_is_never_accused(fence: str, *, tokens: bool, block: int) -> None:
    passed = 0
    for seed in range(block * 50, block * 50 + 50):
        verdict = judge(run(seed, fence=fence, tokens=tokens))
        assert verdict.anomalies == (), (seed, verdict.headline)
        passed += verdict.verdict == "pass"
    assert passed >= 40  # some short runs see no takeover


def test_nor_is_a_pair_without_tokens() -> None:
    for seed in range(60):
        verdict = judge(run(seed, fence="guarded", tokens=False))
        assert verdict.anomalies == (), (seed, verdict.headline)


def test_an_unfenced_resource_is_convicted_of_exactly_what_it_did() -> None:
    convicted = 0
    for seed in range(60):
        evidence = run(seed, fence="none")
        assert evidence.store_log is not None
        truth = inverted(evidence.store_log)
        assert stale_values(evidence, judge(evidence)) == truth, seed
        without_log = replace(evidence, store_log=None)
        verdict = judge(without_log)
        assert stale_values(without_log, verdict) <= truth, seed
        assert {a.name for a in verdict.anomalies} <= {"stale-owner-write", "lost-update"}
        convicted += verdict.verdict == "fail"
    assert convicted >= 50


def test_without_tokens_it_is_convicted_too() -> None:
    convicted = 0
    for seed in range(40):
        evidence = run(seed, fence="none", tokens=False)
        with_tokens = run(seed, fence="none")
        assert with_tokens.store_log is not None
        verdict = judge(evidence)
        assert stale_values(evidence, verdict) <= inverted(with_tokens.store_log), seed
        convicted += verdict.verdict == "fail"
    assert convicted >= 30


def test_a_run_is_a_function_of_its_seed() -> None:
    assert run(3).history.ops == run(3).history.ops
    assert run(3).history.ops != run(4).history.ops


def test_a_run_that_was_cut_anywhere_is_judged_up_to_the_cut() -> None:
    evidence = run(1, fence="none")
    found = {
        judge(replace(evidence, history=replace(evidence.history, ops=ops, cut=True))).verdict
        for ops in (evidence.history.ops[:n] for n in range(0, len(evidence.history.ops), 37))
    }
    assert "fail" in found
    checked = run(1, fence="checked")
    for n in range(0, len(checked.history.ops), 37):
        cut = replace(checked.history, ops=checked.history.ops[:n], cut=True)
        verdict = judge(replace(checked, history=cut, final_ns=None, store_log=None))
        assert verdict.anomalies == ()
