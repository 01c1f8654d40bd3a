"""Each rule of the fenced check is needed: a checker without it is caught.

Sixteen mutants are built from the source, one change each, and judged by the same histories as the
real checker: hand-written ones, of which each needs one rule, and random ones.
"""

import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from harness.checking.columns import from_history
from harness.checking.finding import Named
from harness.checking.steps import Steps, steps_of
from tests import checking_objects as objects
from tests import oracle_models as oracle
from tests.checking_histories import Made, Shape, history_of, simulate

RANDOM = 2000
PACKAGE = Path(import_module("harness.checking.fenced").__file__ or "").parent
MODULES = ("clusters", "classes", "refusals", "fenced")

# What the mutant forgets: the module, the text, and what stands there instead.
MUTANTS = {
    "a read may end before its write begins": (
        "clusters",
        "ended < call[source]",
        "ended < -1",
    ),
    "a read may tell any token": (
        "fenced",
        "told_wrong(clusters) or ",
        "",
    ),
    "a refusal may name a lower token": (
        "fenced",
        " or refused_by_a_low_token(steps)",
        "",
    ),
    "tokens may go backwards": (
        "fenced",
        "_across(classes) or ",
        "",
    ),
    "values of one token may alternate": (
        "fenced",
        "or _inside(classes)",
        "",
    ),
    "two lives of one token may overlap": (
        "clusters",
        "(starts[1:] < reach[:-1])",
        "((starts[1:] < reach[:-1]) & ~forward[order][1:])",
    ),
    "a write may be lost inside another's life": (
        "clusters",
        "(starts[1:] < reach[:-1])",
        "((starts[1:] < reach[:-1]) & forward[order][1:])",
    ),
    "a sight of a token needs no time": (
        "fenced",
        "or judge_sights(classes)",
        "",
    ),
    "a refusal needs no reason": (
        "fenced",
        "or judge_refusals(classes)",
        "",
    ),
    "a refusal may come before a lower token": (
        "refusals",
        "mine & (reach[below] > ret)",
        "mine & False",
    ),
    "any member can be the first of its class": (
        "refusals",
        "np.where(last <= others,",
        "np.where(last <= span,",
    ),
    "an unknown write explains no refusal": (
        "refusals",
        "codes = np.concatenate([classes.code, classes.code_of[unknown]])",
        "unknown = unknown[:0]; codes = classes.code",
    ),
    "an unknown write must have happened": (
        "clusters",
        "steps.outcome[writes] == UNKNOWN)",
        "steps.outcome[writes] > REFUSED)",
    ),
    "equal times are ordered": (
        "clusters",
        "starts[1:] < reach[:-1]",
        "starts[1:] <= reach[:-1]",
    ),
    "equal times of two tokens are ordered": (
        "fenced",
        "[:-1] > higher[1:]",
        "[:-1] >= higher[1:]",
    ),
    "a sight does not count for its class": (
        "classes",
        "np.maximum.at(last, at, steps.call[sights])",
        "pass",
    ),
}


def write(
    call: int, ret: int, token: int, value: str, kind: str = "ok", told: int | None = None
) -> Made:
    made = Made(call, ret, "write", value=value, token=token, told=told)
    if kind == "info":
        made.type = "info"
    elif kind == "fenced":
        made.type, made.error = "fail", "fenced"
    return made


def read(call: int, ret: int, value: str | None, told: int | None = None) -> Made:
    return Made(call, ret, "read", result=value, told=told)


# The counterexamples of docs/explanation/fenced-check.md, with the verdict of the definition.
BY_HAND: dict[str, tuple[bool, list[Made]]] = {
    "being first matters": (
        False,
        [
            write(1, 100, 5, "a"),
            write(20, 50, 5, "b"),
            read(60, 70, "a"),
            write(5, 10, 3, "c", "fenced"),
        ],
    ),
    "an unknown write explains a refusal": (
        True,
        [write(1, 0, 7, "a", "info"), write(2, 3, 5, "b", "fenced")],
    ),
    "an unknown write that came too late explains none": (
        False,
        [write(4, 0, 7, "a", "info"), write(2, 3, 5, "b", "fenced")],
    ),
    "a lower token after a refusal": (
        False,
        [
            write(1, 0, 7, "a", "info"),
            write(2, 3, 5, "b", "fenced"),
            write(4, 5, 4, "c"),
        ],
    ),
    "a refusal that names the token is a sight of it": (
        False,
        [
            write(1, 20, 7, "a"),
            write(2, 3, 5, "b", "fenced", told=7),
            write(4, 5, 6, "c"),
        ],
    ),
    "a sight on the low side, late": (
        False,
        [write(1, 2, 5, "a"), write(3, 4, 6, "b"), read(5, 6, None, told=5)],
    ),
    "the touch of two lives of one token": (
        True,
        [write(1, 2, 5, "a"), write(1, 8, 5, "b"), read(2, 4, "a"), read(4, 5, "b")],
    ),
    "a value before its write": (False, [write(5, 6, 7, "a"), read(2, 3, "a")]),
    "a value with another write's token": (
        False,
        [write(1, 9, 7, "a"), write(1, 9, 8, "b"), read(1, 9, "a", told=8)],
    ),
    "a token told that nobody wrote yet": (
        False,
        [write(5, 6, 7, "a"), read(2, 3, None, told=7)],
    ),
}


@cache
def corpus() -> list[tuple[Steps, bool, str]]:
    """All histories with the verdict of the definition."""
    out = []
    for name, (legal, calls) in BY_HAND.items():
        history = history_of(calls)
        assert oracle.legal(history.calls, oracle.fenced, (0, None)) == legal, name
        out.append((steps_of(from_history(history), None, fenced=True), legal, name))
    rnd = random.Random(7)  # noqa: S311 - a history, no secret
    act = objects.fenced_act()
    for number in range(RANDOM):
        noise = rnd.choice([0.0, 0.05, 0.15])
        crash = rnd.choice([0.0, 0.15, 0.4])
        shape = Shape(rnd.getrandbits(48), rnd.randint(4, 8), rnd.randint(2, 5), crash, noise)
        history = history_of(simulate(shape, (0, None), act))
        legal = oracle.legal(history.calls, oracle.fenced, (0, None))
        steps = steps_of(from_history(history), None, fenced=True)
        out.append((steps, legal, f"random {number}"))
    return out


def disagreements(judge: Callable[[Steps], Named | None]) -> Iterator[str]:
    for steps, legal, name in corpus():
        try:
            found = judge(steps) is None
        except (IndexError, ValueError, StopIteration):  # a mutant may lose its evidence
            found = False
        if found != legal:
            yield name


def build(module: str, old: str, new: str) -> Callable[[Steps], Named | None]:
    """Return the judge of a checker with one change, made of the sources."""
    made: dict[str, ModuleType] = {}
    for name in MODULES:
        source = (PACKAGE / f"{name}.py").read_text()
        if name == module:
            assert source.count(old) == 1, f"{module}: {source.count(old)} times {old!r}"
            source = source.replace(old, new)
        for earlier in made:
            source = source.replace(f"harness.checking.{earlier} ", f"mutant_{earlier} ")
        fresh = ModuleType(f"mutant_{name}")
        sys.modules[fresh.__name__] = made[name] = fresh
        exec(compile(source, f"{name}.py", "exec"), fresh.__dict__)  # noqa: S102 - our own source
    judge: Callable[[Steps], Named | None] = made["fenced"].judge_fenced
    return judge


@pytest.fixture
def modules() -> Iterator[None]:
    yield
    for name in MODULES:
        sys.modules.pop(f"mutant_{name}", None)


def test_the_checker_itself_agrees_with_every_history(modules: None) -> None:
    assert list(disagreements(build("", "", ""))) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(modules: None, name: str) -> None:
    assert next(disagreements(build(*MUTANTS[name])), None), f"nobody noticed: {name}"
