"""What the workers of the fencing workload do, answer by answer."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from harness.generator import Done, Generator, Invoke, Step, Wait
from harness.op import Op
from harness.options import describe
from harness.spec import RunSpec, TargetSpec
from workloads._contender import Contender
from workloads.fencing import Fencing

MS = 1_000_000
SPEC = RunSpec(TargetSpec("lock"), TargetSpec("store"), workers=2, readers=1, seed=7)


def answer(
    kind: Literal["ok", "fail", "info"],
    f: str,
    *,
    value: Any = None,
    token: int | None = None,
    error: str | None = None,
) -> Op:
    return Op(process=0, type=kind, f=f, key="k0", value=value, token=token, time_ns=0, error=error)


def contender(**options: Any) -> Generator:
    return Fencing(**options).generators(SPEC)[0]


class Drive:
    """Answers a contender's operations and keeps what it asked for."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.now_ns = 0
        self.asked: list[Invoke] = []
        self.waits: list[int] = []

    def step(self, last: Op | None = None) -> Step:
        step, self.generator = self.generator.step(last, self.now_ns)
        while isinstance(step, Wait):
            assert step.until_ns >= self.now_ns
            self.waits.append(step.until_ns - self.now_ns)
            self.now_ns = step.until_ns
            step, self.generator = self.generator.step(None, self.now_ns)
        if isinstance(step, Invoke):
            self.asked.append(step)
        return step

    def good(self, f: str) -> Op:
        """What a lock and a store that work would answer."""
        self.now_ns += MS
        value = {"acquire": {"ttl_s": 2.0}, "check": {"held": True}}.get(f)
        return answer("ok", f, value=value, token=34 if f == "acquire" else None)

    def until(self, f: str) -> Invoke:
        """Answer well until the contender asks for `f`."""
        step = self.step()
        while True:
            assert isinstance(step, Invoke)
            if step.f == f:
                return step
            step = self.step(self.good(step.f))


def test_a_hold_is_rounds_of_read_check_write_and_then_a_release() -> None:
    drive = Drive(contender(rounds="2"))
    drive.until("release")
    assert [step.f for step in drive.asked] == [
        "acquire",
        *("read", "check", "write") * 2,
        "release",
    ]
    assert drive.asked[0] == Invoke("acquire", "k0", {"ttl_s": 2.0})
    assert drive.asked[1] == Invoke("read", "k0")
    assert drive.asked[2] == Invoke("check", "k0", {"ask": True, "think_ms": 20}, 34)
    assert drive.asked[3] == Invoke("write", "k0", "w1-0", 34)
    assert drive.asked[6] == Invoke("write", "k0", "w1-1", 34)
    assert drive.asked[7] == Invoke("release", "k0", None, 34)


def test_values_never_repeat_over_many_holds() -> None:
    drive = Drive(contender())
    step = drive.step()
    for _ in range(2000):
        assert isinstance(step, Invoke)
        step = drive.step(drive.good(step.f))
    written = [step.value for step in drive.asked if step.f == "write"]
    assert len(written) > 500
    assert len(set(written)) == len(written)
    assert written[:3] == ["w1-0", "w1-1", "w1-2"]


def test_rounds_come_at_most_at_the_rate() -> None:
    drive = Drive(contender(rate=10, rounds="3"))
    drive.until("acquire")
    begun = []
    step: Step = drive.asked[-1]
    while isinstance(step, Invoke) and step.f != "release":
        if step.f == "read":
            begun.append(drive.now_ns)
        step = drive.step(drive.good(step.f))
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    assert len(gaps) == 2
    assert min(gaps) >= 100 * MS


def test_the_number_of_rounds_is_drawn_from_the_seed_within_its_bounds() -> None:
    lengths: list[int] = []
    drive = Drive(contender())
    step = drive.step()
    length = 0
    while len(lengths) < 200:
        assert isinstance(step, Invoke)
        length += step.f == "write"
        if step.f == "release":
            lengths.append(length)
            length = 0
        step = drive.step(drive.good(step.f))
    assert set(lengths) == set(range(5, 16))


@pytest.mark.parametrize(
    "last",
    [answer("fail", "acquire", error="held"), answer("info", "acquire", error="timeout")],
)
def test_after_a_refusal_or_no_answer_it_waits_a_little_and_tries_again(last: Op) -> None:
    drive = Drive(contender())
    drive.step()
    step = drive.step(last)
    assert isinstance(step, Invoke)
    assert step.f == "acquire"
    assert 25 * MS <= drive.waits[0] <= 75 * MS


@pytest.mark.parametrize(
    ("f", "last"),
    [
        ("check", answer("ok", "check", value={"held": False})),
        ("write", answer("fail", "write", error="fenced: 33 < 34")),
        ("write", answer("fail", "write", error="not-holder")),
        ("check", answer("fail", "check", error="not-holder: gone")),
    ],
)
def test_an_answer_that_says_no_ends_the_hold_without_a_release(f: str, last: Op) -> None:
    drive = Drive(contender())
    drive.until(f)
    step = drive.step(last)
    assert isinstance(step, Invoke)
    assert step.f == "acquire"


@pytest.mark.parametrize("f", ["read", "check", "write"])
@pytest.mark.parametrize("kind", ["info", "fail"])
def test_an_answer_that_leaves_it_open_makes_it_release_once(
    f: str, kind: Literal["info", "fail"]
) -> None:
    drive = Drive(contender())
    drive.until(f)
    error = "no-effect: connection refused" if kind == "fail" else "timeout"
    step = drive.step(answer(kind, f, error=error))
    assert step == Invoke("release", "k0", None, 34)
    step = drive.step(answer("info", "release", error="timeout"))
    assert isinstance(step, Invoke)
    assert step.f == "acquire"


def test_held_unknown_or_not_asked_goes_on_to_the_write() -> None:
    drive = Drive(contender(check="off"))
    check = drive.until("check")
    assert check.value == {"ask": False, "think_ms": 20}
    step = drive.step(answer("ok", "check", value={"held": None}))
    assert isinstance(step, Invoke)
    assert step.f == "write"


def test_a_lock_without_tokens_gives_operations_without_tokens() -> None:
    drive = Drive(contender())
    drive.step()
    drive.step(answer("ok", "acquire", value={"ttl_s": 2.0}))
    drive.step(drive.good("read"))
    assert drive.asked[-1] == Invoke("check", "k0", {"ask": True, "think_ms": 20}, None)


def test_with_several_keys_each_is_tried() -> None:
    drive = Drive(contender(keys=3))
    drive.step()
    for _ in range(60):
        drive.step(answer("fail", "acquire", error="held"))
    assert {step.key for step in drive.asked} == {"k0", "k1", "k2"}


def test_a_generator_is_a_value() -> None:
    one, two = contender(), contender()
    assert one == two
    assert one.step(None, 5) == two.step(None, 5) == one.step(None, 5)
    assert isinstance(one, Contender)
    with pytest.raises(FrozenInstanceError):
        one.n = 3  # type: ignore[misc] # that it cannot be set is what is tested


def test_workers_draw_from_streams_of_their_own() -> None:
    first, second, _ = Fencing(keys=50).generators(SPEC)
    keys = []
    for generator in (first, second):
        drive = Drive(generator)
        drive.step()
        for _ in range(10):
            drive.step(answer("fail", "acquire", error="held"))
        keys.append([step.key for step in drive.asked])
    assert keys[0] != keys[1]


def test_readers_read_the_keys_in_turn() -> None:
    drive = Drive(Fencing(keys=2, rate=10).generators(SPEC)[2])
    for _ in range(4):
        drive.step(answer("ok", "read"))
    assert [(step.f, step.key) for step in drive.asked] == [
        ("read", "k0"),
        ("read", "k1"),
        ("read", "k0"),
        ("read", "k1"),
    ]
    assert drive.waits == [100 * MS] * 3


def final(n: int, **options: Any) -> Drive:
    return Drive(Fencing(**options).final(SPEC)[n])


def test_in_the_end_contenders_show_that_the_lock_is_given_and_read_every_key() -> None:
    drive = final(0, keys=2)
    assert drive.step() == Invoke("release", "k0")  # whatever it still holds
    assert drive.step(answer("fail", "release", error="not-holder")) == Invoke(
        "acquire", "k0", {"ttl_s": 2.0}
    )
    assert drive.step(drive.good("acquire")) == Invoke("release", "k0", None, 34)
    assert drive.step(drive.good("release")) == Invoke("read", "k0")
    assert drive.step(drive.good("read")) == Invoke("read", "k1")
    assert drive.step(drive.good("read")) == Done()
    assert drive.waits == []


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_in_the_end_a_contender_tries_until_its_time_is_over(kind: Literal["fail", "info"]) -> None:
    drive = final(0, keys=2)
    step = drive.step()
    while isinstance(step, Invoke) and step.f != "read":
        assert drive.now_ns < 11_000 * MS
        step = drive.step(answer(kind, step.f, error="held"))
    assert drive.now_ns >= 10_000 * MS
    assert [step.f for step in drive.asked].count("release") == 2  # each key once
    tried = [step.key for step in drive.asked if step.f == "acquire"]
    assert tried[:4] == ["k0", "k1", "k0", "k1"]
    assert 25 * MS <= min(drive.waits) <= max(drive.waits) <= 75 * MS


def test_with_a_long_lease_it_has_more_time() -> None:
    spec = replace(SPEC, ttl_s=4.0)
    drive = Drive(Fencing().final(spec)[0])
    step = drive.step()
    while isinstance(step, Invoke) and step.f != "read":
        step = drive.step(answer("fail", step.f, error="held"))
    assert 20_000 * MS <= drive.now_ns < 21_000 * MS


def test_in_the_end_every_reader_reads_until_it_has_an_answer_for_every_key() -> None:
    drive = final(2, keys=2)
    drive.step()
    drive.step(answer("info", "read", error="timeout"))
    drive.step(answer("ok", "read"))
    assert drive.step(answer("ok", "read")) == Done()
    assert [step.key for step in drive.asked] == ["k0", "k0", "k1"]
    assert drive.waits == [50 * MS]


def test_options_are_read_as_people_write_them() -> None:
    options = Fencing(think="1.5s", retry="5ms", check="off", rounds="3..4", rate="2").options
    assert (options.think, options.retry, options.check) == (1.5, 0.005, False)
    assert (options.rounds, options.rate) == ((3, 4), 2.0)
    assert Fencing(rounds=8).options.rounds == (8, 8)
    shown = {option.name: option.default for option in describe(Fencing)}
    assert shown == {
        "keys": "1",
        "think": "20ms",
        "rate": "20.0",
        "rounds": "5..15",
        "check": "true",
        "retry": "50ms",
        "wait": "none",
    }


@pytest.mark.parametrize(
    "wrong",
    [{"key": 2}, {"keys": 0}, {"think": 20}, {"rounds": "9..3"}, {"rounds": "x"}, {"rate": 0}],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Fencing(**wrong)
