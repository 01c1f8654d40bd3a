"""What a bad link does to packets, as a pure function; and how several shapes add up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.local.line import Line
from harness.shape import OVERTAKEN_S, QUEUE_S, Shape, slowest_s, together

COUNT = 2000
GAP_S = 0.001

shares = st.floats(0, 1)
seconds = st.floats(0, 0.5)
shapes = st.builds(Shape, seconds, seconds, shares, shares, shares, st.none() | st.floats(1e3, 1e7))


def through(shape: Shape, seed: int = 1, count: int = COUNT, size: int = 100) -> list[list[float]]:
    """Send packets a millisecond apart; return when each arrives."""
    line = Line(shape, seed)
    return [line.due(size, i * GAP_S) for i in range(count)]


@given(shapes, st.integers())
def test_the_same_seed_does_the_same(shape: Shape, seed: int) -> None:
    assert through(shape, seed, 50) == through(shape, seed, 50)


@given(shapes)
def test_no_packet_arrives_early_or_later_than_promised(shape: Shape) -> None:
    least_s = max(0.0, shape.delay_s - shape.jitter_s)
    for i, arrivals in enumerate(through(shape, count=100)):
        sent = i * GAP_S
        own_s = 0 if shape.rate_bytes_s is None else 100 / shape.rate_bytes_s
        for at in arrivals:
            assert at >= sent + least_s - 1e-9
            assert at <= sent + slowest_s([shape]) + own_s + 1e-9


@given(st.builds(Shape, seconds, seconds))
def test_delay_and_jitter_keep_the_order(shape: Shape) -> None:
    arrivals = [at for (at,) in through(shape, count=100)]
    assert arrivals == sorted(arrivals)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_shares_are_met(share: float) -> None:
    bound = 5 * (COUNT * share * (1 - share)) ** 0.5 + 1
    lost = sum(not arrivals for arrivals in through(Shape(loss=share)))
    doubled = sum(len(arrivals) == 2 for arrivals in through(Shape(duplicate=share)))
    late = sum(at > i * GAP_S for i, (at,) in enumerate(through(Shape(reorder=share))))
    for number in (lost, doubled, late):
        assert abs(number - COUNT * share) <= bound


def test_a_packet_that_is_held_back_is_overtaken() -> None:
    arrivals = [at for (at,) in through(Shape(delay_s=0.05, reorder=0.1))]
    swapped = sum(b < a for a, b in itertools.pairwise(arrivals))
    assert swapped > COUNT * 0.05
    assert max(at - i * GAP_S for i, at in enumerate(arrivals)) <= 0.05 + OVERTAKEN_S + 1e-9


def test_a_rate_bounds_what_arrives_in_a_second_and_the_queue() -> None:
    """A hundred bytes each millisecond into a line of half as much."""
    arrivals = [at for found in through(Shape(rate_bytes_s=50_000), count=10_000) for at in found]
    for second in range(5):
        assert sum(second <= at < second + 1 for at in arrivals) <= 501
    waits = [
        at - i * GAP_S
        for i, found in enumerate(through(Shape(rate_bytes_s=50_000), count=10_000))
        for at in found
    ]
    assert QUEUE_S / 2 < max(waits) <= QUEUE_S + 0.003
    assert len(waits) < 10_000, "what the queue does not hold is lost"


@given(shapes, shapes, shapes)
def test_shapes_add_up_in_any_order(one: Shape, two: Shape, three: Shape) -> None:
    whole = together([one, two, three])
    other = together([three, together([one, two])])
    assert whole.rate_bytes_s == other.rate_bytes_s
    for name in ("delay_s", "jitter_s", "loss", "duplicate", "reorder"):
        assert getattr(whole, name) == pytest.approx(getattr(other, name))
        assert getattr(whole, name) >= max(getattr(s, name) for s in (one, two, three)) - 1e-12
    assert together([one]) == together([Shape(), one])
