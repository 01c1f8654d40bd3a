"""Durations and random streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.rng import below, stream, uniform
from harness.units import Duration, parse_duration, parse_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("2s", 2.0), ("1.5m", 90.0), ("2.5leases", 5.0), ("1lease", 2.0), ("3 s", 3)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text).seconds(ttl_s=2.0) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "2", "s", "-1s", "2 parsecs", "1e3s", None, 2, "2s2s"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="unit"):
        parse_duration(text)


def test_leases_are_refused_where_seconds_are_meant() -> None:
    with pytest.raises(ValueError, match="leases"):
        parse_seconds("2leases")


@given(st.floats(0.001, 1000).map(lambda x: float(f"{x:.3g}")), st.booleans())
def test_a_duration_reads_back_as_it_is_shown(amount: float, in_leases: bool) -> None:
    shown = Duration(amount, in_leases)
    assert parse_duration(str(shown)).seconds(2.0) == pytest.approx(shown.seconds(2.0))


@given(st.integers(), st.integers(0, 1000))
def test_a_draw_depends_on_seed_stream_and_counter_only(seed: int, counter: int) -> None:
    assert below(stream(seed, "w1"), counter, 1000) == below(stream(seed, "w1"), counter, 1000)
    assert stream(seed, "w1") != stream(seed, "w2")
    assert 2.0 <= uniform(stream(seed, "w1"), counter, 2.0, 3.0) < 3.0


def test_draws_are_spread() -> None:
    start = stream(7, "spread")
    counts = [0] * 10
    for n in range(10_000):
        counts[below(start, n, 10)] += 1
    assert min(counts) > 850
    assert max(counts) < 1150
