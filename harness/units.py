"""Durations as people write them: `500ms`, `2s`, `1.5m`, and `2.5leases`.

A lease is the unit that matters here: a pause that is short against the lease proves nothing.
"""

import re
from dataclasses import dataclass

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|leases?)\s*\Z")


@dataclass(frozen=True)
class Duration:
    """A length of time in seconds, or in leases of the run's TTL."""

    amount: float
    in_leases: bool = False

    def seconds(self, ttl_s: float) -> float:
        """Return the length in seconds, given the run's TTL in seconds."""
        return self.amount * ttl_s if self.in_leases else self.amount

    def __str__(self) -> str:
        if self.in_leases:
            return f"{self.amount:g}leases"
        return f"{self.amount * 1000:g}ms" if 0 < self.amount < 1 else f"{self.amount:g}s"


def parse_duration(text: object) -> Duration:
    """Return the duration that `text` names; a unit is required.

    Raises ValueError with a sentence that says what is allowed.
    """
    if isinstance(text, Duration):
        return text
    match = _PATTERN.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"{text!r} is no duration: write a number and a unit, like 500ms, 2s, 1.5m or 2.5leases"
        )
    amount, unit = float(match.group(1)), match.group(2)
    if unit.startswith("lease"):
        return Duration(amount, in_leases=True)
    return Duration(amount * _SECONDS[unit])


def parse_signed(text: object) -> Duration:
    """Return the duration that `text` names, with a sign before it or none.  Raises ValueError."""
    if isinstance(text, str) and text.lstrip()[:1] in ("+", "-"):
        bare = parse_duration(text.lstrip()[1:])
        sign = -1.0 if text.lstrip().startswith("-") else 1.0
        return Duration(sign * bare.amount, bare.in_leases)
    return parse_duration(text)


def parse_seconds(text: object) -> float:
    """Return a length in seconds; `leases` is not allowed here.  Raises ValueError."""
    duration = parse_duration(text)
    if duration.in_leases:
        raise ValueError(f"{text!r}: leases are no unit here, write seconds")
    return duration.amount


def show_ns(time_ns: int) -> str:
    """Return a time of the run for people: seconds with three decimals."""
    return f"{time_ns / 1e9:.3f} s"
