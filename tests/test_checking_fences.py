"""A fence that many keys share, and seals: the checker, the search and the definition agree.

What needs each rule, and what only looks as if it did, is written out by hand.
"""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from harness.checking import MODELS, check, fences
from harness.checking.columns import from_history
from harness.checking.engine import Judge, Judgement
from harness.checking.models import Options
from tests import checking_objects as objects
from tests import oracle_models as oracle
from tests.checking_histories import Made, Shape, history_of, simulate

pytestmark = pytest.mark.once
HISTORIES = {"nightly": 100_000, "quick": 500}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 5_000)
SEED = int(os.environ.get("FENCES_SEED", "7"))
START = (0,)


def write(key: str, token: int, value: int | None, call: int, ret: int) -> Made:
    """An accepted write; of no value: a seal."""
    f = "write" if value is not None else "seal"
    return Made(call, ret, f, key=key, token=token, value=value)


def lost(key: str, token: int, value: int, call: int) -> Made:
    return Made(call, call, "write", key=key, token=token, value=value, type="info")


def read(key: str, value: int | None, call: int, ret: int, told: int | None = None) -> Made:
    return Made(call, ret, "read", key=key, result=value, told=told)


def refused(key: str, token: int, call: int, ret: int, told: int | None = None) -> Made:
    return Made(
        call, ret, "write", key=key, token=token, value=99, type="fail", error="fenced", told=told
    )


A, B = "a", "b"
LEGAL = {
    "a higher token on another key does not end a value": [
        write(A, 5, 1, 1, 2), write(B, 6, 3, 3, 4), read(A, 1, 5, 6),
    ],
    "the last value of a token is read beside higher tokens": [
        write(A, 5, 1, 1, 20), write(A, 5, 2, 1, 20), write(B, 6, 3, 2, 20),
        read(A, 1, 3, 4), read(A, 2, 30, 31),
    ],
    "an unknown write on another key explains a refusal": [
        lost(B, 7, 1, 1), refused(A, 5, 2, 3), read(A, None, 10, 11),
    ],
    "a seal explains a refusal and leaves the value": [
        write(A, 5, 1, 1, 2), write(A, 7, None, 3, 4), refused(A, 6, 5, 6), read(A, 1, 7, 8),
    ],
    "the highest token is that of another key": [
        write(A, 5, 1, 1, 2), write(B, 7, 2, 3, 4), read(A, None, 5, 6, told=7),
    ],
}  # fmt: skip
ILLEGAL = {
    "a lower token on another key": [write(A, 5, 1, 1, 2), write(B, 4, 2, 3, 4)],
    "two values of a token cannot both come last": [
        write(A, 5, 1, 1, 2), write(A, 5, 2, 1, 20), write(B, 6, 3, 3, 4), read(A, 1, 10, 11),
        read(A, 2, 12, 13), read(A, 1, 14, 15),
    ],
    "a value of a token was read after a higher token, and another one later": [
        write(A, 5, 1, 1, 20), write(A, 5, 2, 1, 20), write(B, 6, 3, 2, 3),
        read(A, 1, 4, 5), read(A, 2, 6, 7),
    ],
    "what explains the refusal would end a value that was read later": [
        lost(A, 7, 2, 1), refused(A, 5, 2, 3), read(A, None, 10, 11),
    ],
    "a refusal that was answered before a lower token was used": [
        lost(B, 7, 1, 1), refused(A, 5, 2, 3), write(A, 4, 2, 4, 5),
    ],
    "a token that was seen before a lower one was used": [
        lost(B, 7, 1, 1), read(A, None, 2, 3, told=7), write(A, 4, 2, 4, 5),
    ],
    "the value that explains the refusal cannot be the first of its token": [
        write(A, 5, 1, 1, 100), write(A, 5, 2, 20, 50), read(A, 1, 60, 70), refused(B, 3, 5, 10),
    ],
    "an old value after a new one": [write(A, 5, 1, 1, 2), read(A, None, 3, 4)],
    "a seal after a higher token": [write(A, 5, 1, 1, 2), write(B, 4, None, 3, 4)],
    "a write under a seal": [write(A, 5, None, 1, 2), write(A, 4, 1, 3, 4)],
    "a token that was seen after a higher one": [
        write(A, 5, 1, 1, 2), write(B, 6, 2, 3, 4), read(A, None, 5, 6, told=5),
    ],
}  # fmt: skip


def judged(calls: Sequence[Made], model: str, *, fast: bool = True) -> Judgement:
    """What the model's judge, or its search alone, finds in some calls."""
    spec = MODELS[model]
    columns = spec.prepare(from_history(history_of(list(calls))))
    judge = Judge(spec, Options(), until=float("inf"))
    if fast:
        return judge.judge(columns)
    keys = columns.key
    parts = [judge.search(columns, (keys == key).nonzero()[0]) for key in sorted(set(keys))]
    return next((part for part in parts if part.illegal), Judgement())


def is_legal(calls: Sequence[Made]) -> bool:
    """What the definition says."""
    return oracle.legal(list(history_of(list(calls)).calls), oracle.shared_fence, START)


@pytest.mark.parametrize("name", [*LEGAL, *ILLEGAL])
def test_what_needs_each_rule(name: str) -> None:
    calls = (LEGAL | ILLEGAL)[name]
    assert is_legal(calls) == (name in LEGAL)
    verdict = check(history_of(calls), "fenced-global")
    assert verdict.verdict == ("pass" if name in LEGAL else "fail")
    if verdict.anomalies:
        named = set(verdict.anomalies[0].ops)
        kept = [c for c in history_of(calls).calls if c.index in named]
        assert not oracle.legal(kept, oracle.shared_fence, START)


def nothing(*_: object) -> None:
    """A rule that finds nothing."""


def without(*fields: str) -> cached_property[Any]:
    """The limits of the classes, without those of some rows."""
    limit = fences._Fences.__dict__["limit"].func
    made = cached_property(
        lambda self: limit(replace(self, **{name: getattr(self, name)[:0] for name in fields}))
    )
    made.__set_name__(fences._Fences, "limit")
    return made


def without_limit() -> cached_property[Any]:
    """When something of each member was over, whatever the limit of its class."""
    made = cached_property(lambda self: self.clusters.first[self.groups.members])
    made.__set_name__(fences._Fences, "first")
    return made


# What the checker forgets, and what stands in that place.
MUTANTS: dict[str, tuple[Any, str, Callable[[], Any]]] = {
    "writes in the order of their tokens": (fences, "_too_late", lambda: nothing),
    "new values after old ones": (fences, "_across", lambda: nothing),
    "an order of the values of one token": (fences, "_inside", lambda: nothing),
    "a reason for each refusal": (fences, "_unexplained", lambda: nothing),
    "the limit of a write that must be over": (fences._Fences, "first", without_limit),
    "the limit that a refusal sets": (
        fences._Fences, "limit", lambda: without("refused", "above"),
    ),
    "the limit that a sight sets": (fences._Fences, "limit", lambda: without("sights", "seen")),
    "reads before what overwrites the value": (
        fences, "_ready", lambda: lambda clusters, _, members: clusters.call[members],
    ),
    "that some cannot be first": (
        fences, "_starts",
        lambda: lambda f: fences._ready(f.clusters, f.groups, f.groups.members),
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgotten", MUTANTS)
def test_a_checker_without_the_rule_is_caught(
    forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, made = MUTANTS[forgotten]
    monkeypatch.setattr(owner, name, made())
    assert not all(judged(calls, "fenced-global").illegal for calls in ILLEGAL.values())


@pytest.mark.parametrize(
    ("model", "keys", "seals", "distinct"),
    [
        ("fenced-global", 2, 0.0, True),
        ("fenced-global", 3, 0.3, True),
        ("fenced-global", 2, 0.2, False),
        ("fenced", 1, 0.4, True),
        ("fenced", 1, 0.4, False),
    ],
)
def test_the_checker_agrees_with_the_definition(
    model: str, keys: int, seals: float, distinct: bool
) -> None:
    act = objects.fence_act(keys=keys, seals=seals, distinct=distinct)
    rnd = random.Random(f"{SEED} {model} {keys} {seals} {distinct}")  # noqa: S311 - a history
    count = HISTORIES // 5
    legal = shown = 0
    for _ in range(count):
        crash, noise = rnd.choice([0, 0.15, 0.4]), rnd.choice([0, 0.05, 0.15, 0.4])
        shape = Shape(rnd.getrandbits(48), rnd.randint(1, 9), rnd.randint(1, 5), crash, noise)
        calls = simulate(shape, START, act)
        truth = is_legal(calls)
        legal += truth
        found = judged(calls, model)
        assert found.illegal == (not truth), calls
        assert not found.limits
        if found.finding is not None and shown < count // 20:
            shown += 1
            assert judged(calls, model, fast=False).illegal, calls
            verdict = check(history_of(calls), model)
            if verdict.anomalies:
                named = set(verdict.anomalies[0].ops)
                kept = [c for c in history_of(calls).calls if c.index in named]
                assert not oracle.legal(kept, oracle.shared_fence, START), (calls, verdict)
        elif shape.size > 6 and legal % 20 == 0:
            assert truth == (not judged(calls, model, fast=False).illegal), calls
    assert count // 4 < legal < count
