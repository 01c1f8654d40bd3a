"""Every checker against the definition, on thousands of tiny histories: never a disagreement.

Fifty keys make one history.  The legal ones are judged together, as one history of many keys, and
must pass; each illegal one is judged alone and must fail, with a witness that is illegal by itself
under the definition.  `HYPOTHESIS_PROFILE=nightly` judges 100,000 histories a model, `quick` 500,
else 5,000.
"""

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from harness.checking import MODELS, check, search, short
from harness.checking.columns import from_history
from harness.checking.engine import Judge
from harness.checking.finding import Finding
from harness.checking.models import Options
from harness.history import Call
from tests import checking_objects as objects
from tests import oracle_models as oracle
from tests.checking_histories import Act, Made, Shape, history_of, shapes, simulate

pytestmark = pytest.mark.once
KEYS = 50
NORMAL = 5_000
HISTORIES = {"nightly": 100_000, "quick": 500}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), NORMAL)
WITNESSES = 3  # histories of each fifty whose witness is put to the definition


@dataclass(frozen=True)
class Case:
    """A model with its simulation and its definition."""

    model: str
    start: Any
    act: Act
    step: oracle.Step
    initial: Any = None
    cas_tells: bool = True


CASES = {
    "register": Case("register", None, objects.register_act(distinct=True), oracle.register()),
    "register-repeated": Case(
        "register", 0, objects.register_act(distinct=False), oracle.register(), 0
    ),
    "cas": Case("cas", None, objects.register_act(distinct=True, cas=True), oracle.register()),
    "cas-repeated": Case(
        "cas",
        0,
        objects.register_act(distinct=False, cas=True, tells=False),
        oracle.register(),
        0,
    ),
    "cas-did-not-happen": Case(
        "cas",
        0,
        objects.register_act(distinct=False, cas=True, tells=False),
        oracle.register(cas_tells=False),
        0,
        cas_tells=False,
    ),
    "fenced": Case("fenced", (0, None), objects.fenced_act(), oracle.fenced),
    "fenced-repeated": Case("fenced", (0, None), objects.fenced_act(distinct=False), oracle.fenced),
    "lock": Case("lock", (None, 0), objects.lock_act(expires=False), oracle.lock(20)),
    "lease": Case("lease", (None, 0), objects.lock_act(expires=True), oracle.lock(20)),
    "set": Case("set", frozenset(), objects.set_act(), oracle.growing_set),
    "set-removes": Case("set", frozenset(), objects.set_act(removes=True), oracle.growing_set),
    "queue": Case("queue", (), objects.queue_act, oracle.queue),
    "kv": Case("kv", "", objects.append_act, oracle.appended),
    "consensus": Case("consensus", None, objects.consensus_act, oracle.consensus),
    "mutex": Case(
        "mutex",
        (None, 0),
        objects.mutex_act(owners=False, depth=1),
        oracle.mutex(owners=False, depth=1),
    ),
    "owner-mutex": Case(
        "owner-mutex",
        (None, 0),
        objects.mutex_act(owners=True, depth=1),
        oracle.mutex(owners=True, depth=1),
    ),
    "semaphore": Case(
        "semaphore", 2, objects.semaphore_act(permits=2), oracle.semaphore(2), initial=2
    ),
    "reentrant-mutex": Case(
        "reentrant-mutex",
        (None, 0),
        objects.mutex_act(owners=True, depth=9),
        oracle.mutex(owners=True, depth=9),
    ),
}


def finding(case: Case, calls: list[Made]) -> Finding | None:
    """What the model's judge finds in some calls."""
    options = Options(case.initial, cas_tells=case.cas_tells)
    judged = Judge(MODELS[case.model], options, until=float("inf")).judge(
        from_history(history_of(calls))
    )
    assert not judged.limits
    return judged.finding


def is_legal(case: Case, calls: list[Call]) -> bool:
    """What the definition says."""
    return oracle.legal(calls, case.step, case.start, expires=case.model == "lease")


def witness_is_illegal(case: Case, calls: list[Made]) -> bool:
    """Whether the ops that the verdict names are illegal by themselves."""
    history = history_of(calls)
    verdict = check(
        history,
        case.model,
        initial=case.initial,
        cas_fail="differed" if case.cas_tells else "did-not-happen",
    )
    if verdict.unknown and not verdict.anomalies:  # nothing succeeded in these few calls
        return True
    named = set(verdict.anomalies[0].ops)
    return not is_legal(case, [c for c in history.calls if c.index in named])


def agrees(case: Case, histories: int) -> None:
    """Put random histories to the model's judge and to the definition."""

    @settings(
        max_examples=histories // KEYS,
        derandomize=histories <= NORMAL,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(shapes(keys=KEYS))
    def agree(shape: Shape) -> None:
        by_key = defaultdict(list)
        for call in simulate(shape, case.start, case.act):
            by_key[call.key].append(call)
        legal: list[Made] = []
        shown = 0
        for calls in by_key.values():
            if is_legal(case, list(history_of(calls).calls)):
                legal += calls
                continue
            assert finding(case, calls) is not None, calls
            if shown < WITNESSES:
                shown += 1
                assert witness_is_illegal(case, calls), calls
        assert finding(case, legal) is None, legal

    agree()


@pytest.mark.parametrize("name", CASES)
def test_the_checker_agrees_with_the_definition(name: str) -> None:
    agrees(CASES[name], HISTORIES)


# The models that always need the search, and those of repeated values.
SEARCHED = [name for name in CASES if "-" in name or name in ("queue", "kv", "mutex")]


@pytest.mark.parametrize("name", SEARCHED)
def test_the_foresight_agrees_with_the_definition(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that never gets through at once, as a long one does not."""
    monkeypatch.setattr(search, "AT_ONCE", -(10**6))
    monkeypatch.setattr(short, "AT_ONCE", -(10**6))
    agrees(CASES[name], HISTORIES // 2)
