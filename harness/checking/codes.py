"""Values of a history as numbers before there is a dictionary of them.

A whole number stands for itself and everything else is numbered, so that a history that writes a
million numbers needs no dictionary of a million objects.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from harness.checking.values import NOT_TOLD, Flags, Ints, Values, frozen

ABSENT = -(1 << 61)
"""The code of what was not told."""

_PLAIN = {int, str, type(None)}
_WHOLE_MAX = 1 << 60
_OTHERS = 1 << 61


class Codes(dict[Any, int]):
    """Codes of values: a whole number is its own, everything else is numbered from 2^61 on.

    `originals` are the values that were numbered; null is the first.
    """

    def __init__(self) -> None:
        super().__init__({None: _OTHERS})
        self.originals: list[Any] = [None]

    def __missing__(self, text: str) -> int:
        number = self[text] = _OTHERS + len(self)
        self.originals.append(text)
        return number

    def of(self, values: Sequence[Any]) -> Ints:
        """Return the codes of many values.

        Raises OverflowError for a whole number beyond 60 bits, which could be taken for a code.
        """
        if set(map(type, values)) <= _PLAIN:
            codes = np.array([v if type(v) is int else self[v] for v in values], np.int64)
        else:
            codes = np.array([self._code(value) for value in values], np.int64)
        beyond = np.flatnonzero((codes >= _WHOLE_MAX) | (codes <= -_WHOLE_MAX)).tolist()
        if int in set(map(type, map(values.__getitem__, beyond))):
            raise OverflowError
        return codes

    def _code(self, value: Any) -> int:
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer() and abs(value) < _WHOLE_MAX:
            return int(value)
        known = frozen(value)
        if known not in self:
            self[known] = _OTHERS + len(self)
            self.originals.append(value)
        return self[known]

    def to_ids(self, codes: Ints) -> "NumberedValues":
        """Make ids of codes, in place, and return the dictionary of these."""
        other = codes >= _OTHERS
        absent = codes == ABSENT
        whole = ~(other | absent)
        known, ranks = _ranked(codes[whole])
        codes[other] -= _OTHERS
        codes[absent] = NOT_TOLD
        codes[whole] = ranks + len(self)
        return NumberedValues(self.originals, known)


def _ranked(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, ascending, and the place of each among them."""
    low, high = int(numbers.min(initial=_WHOLE_MAX)), int(numbers.max(initial=-_WHOLE_MAX))
    if high - low >= 4 * len(numbers) + 1024:
        known, ranks = np.unique(numbers, return_inverse=True)
        return known, ranks
    present: Flags = np.zeros(max(0, high - low + 1), bool)
    present[numbers - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[numbers - low]


class NumberedValues(Values):
    """A dictionary whose whole numbers are an array: first what is no number, then they.

    Values that are not in it get ids after its own.
    """

    def __init__(self, others: Sequence[Any], numbers: Ints) -> None:
        super().__init__()
        for value in others:
            super().id(value)
        self._first = super().__len__()
        self._numbers = numbers

    def id(self, value: Any) -> int:
        """Return the id of a value, a new one when it was never seen."""
        if isinstance(value, int | float) and not isinstance(value, bool) and len(self._numbers):
            at = min(int(np.searchsorted(self._numbers, value)), len(self._numbers) - 1)
            if int(self._numbers[at]) == value:
                return self._first + at
        number = super().id(value)
        return number if number < self._first else number + len(self._numbers)

    def __getitem__(self, number: int) -> Any:
        """The value of an id."""
        at = number - self._first
        if 0 <= at < len(self._numbers):
            return int(self._numbers[at])
        return super().__getitem__(number if at < 0 else number - len(self._numbers))

    def __len__(self) -> int:
        return super().__len__() + len(self._numbers)

    def packed(self) -> tuple[bytes, Ints]:
        """Return all values as JSON text, and where each of them ends."""
        texts = [msgspec.json.encode(value) for value in self._originals]
        texts[self._first : self._first] = [b"%d" % number for number in self._numbers.tolist()]
        return b"".join(texts), np.cumsum([len(text) for text in texts], dtype=np.int64)
