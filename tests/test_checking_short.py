"""The search on bare numbers against the general one, on histories too long for the definition."""

import random

import pytest

from harness.checking import MODELS
from harness.checking.columns import Columns, from_history
from harness.checking.engine import Judge
from harness.checking.models import Options
from harness.checking.requests import Requests
from harness.checking.search import Budget, Outcome, Search
from harness.checking.short import judge_short
from harness.checking.values import Ints
from tests import checking_objects as objects
from tests.checking_histories import Made, Shape, history_of, simulate

pytestmark = pytest.mark.once
HISTORIES = 100
NO_LIMIT = Budget(1e9, 1 << 30, lambda: 0.0)


def both(columns: Columns, *, cas_tells: bool) -> tuple[Outcome | None, Outcome]:
    """What the two searches find."""
    rows: Ints = columns.index.argsort()
    short = judge_short(columns, rows, 0, cas_tells=cas_tells, late=lambda: False)
    make = MODELS["cas"].search
    assert make is not None
    model = make(Options(0, cas_tells=cas_tells))
    return short, Search(model, Requests(columns, model, rows), model.start(0)).run(NO_LIMIT)


@pytest.mark.parametrize("cas_tells", [True, False])
@pytest.mark.parametrize("crash", [0.0, 0.05, 0.3])
def test_the_searches_agree(*, cas_tells: bool, crash: float) -> None:
    rnd = random.Random(f"{cas_tells} {crash}")  # noqa: S311 - a history, no secret
    act = objects.register_act(distinct=False, cas=True, tells=cas_tells)
    verdicts = []
    for _ in range(HISTORIES):
        size, clients = rnd.randint(20, 80), rnd.randint(2, 6)
        shape = Shape(rnd.getrandbits(48), size, clients, crash, rnd.choice([0.0, 0.02]))
        columns = from_history(history_of(simulate(shape, 0, act)))
        short, long = both(columns, cas_tells=cas_tells)
        if short is not None:
            assert short.legal == long.legal, shape
            verdicts.append(short.legal)
    assert len(verdicts) > HISTORIES / 2
    assert 0 < sum(map(bool, verdicts)) < len(verdicts)


def test_a_search_that_is_late_leaves_the_key_to_the_other_one() -> None:
    calls = [Made(4 * i, 4 * i + 1, "write", value=i % 3) for i in range(1500)]
    calls += [Made(4 * i + 2, 4 * i + 3, "read", result=i % 3) for i in range(1500)]
    columns = from_history(history_of(calls))
    rows: Ints = columns.index.argsort()
    assert judge_short(columns, rows, 0, cas_tells=True, late=lambda: True) is None
    found = judge_short(columns, rows, 0, cas_tells=True, late=lambda: False)
    assert found is not None
    assert found.legal
    judged = Judge(MODELS["register"], Options(0), until=-1.0, clock=lambda: 0.0).judge(columns)
    assert judged.limits
