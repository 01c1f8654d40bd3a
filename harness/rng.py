"""Randomness without hidden state.

A draw is a pure function of (seed, stream, counter).  Each purpose has a stream of its own, so
that adding a fault does not shift what the workers do, and a generator stays a value that can be
compared and replayed.  The mixer is splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
Number Generators, OOPSLA 2014).
"""

import zlib

_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def stream(seed: int, name: str) -> int:
    """Return the start of the stream `name` of `seed` (both decide; names are compared by CRC)."""
    return _mix((seed & _MASK) ^ _mix(zlib.crc32(name.encode())))


def below(start: int, counter: int, limit: int) -> int:
    """Return draw number `counter` of a stream, uniform in [0, limit)."""
    return _mix(start + counter) % limit


def uniform(start: int, counter: int, low: float, high: float) -> float:
    """Return draw number `counter` of a stream, uniform in [low, high)."""
    return low + (high - low) * (_mix(start + counter) >> 11) / (1 << 53)
