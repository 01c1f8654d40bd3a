"""Values of a history as small integers.

Two values are the same value when they are equal as JSON: `1` and `1.0` are one number, `1` and
`true` are not.  Id 0 is always `null`.  A dictionary read from a file keeps its text and decodes a
value when somebody asks for it, because a check needs names only for what it reports.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NIL = 0
NOT_TOLD = -1


class _Unsaid:
    """The answer of an operation that did not tell it."""

    def __repr__(self) -> str:
        return "UNSAID"


UNSAID = _Unsaid()


def frozen(value: Any) -> Any:
    """Return a hashable stand-in that is equal exactly for values that are equal as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        items = sorted(((str(k), frozen(v)) for k, v in value.items()), key=lambda kv: kv[0])
        return ("map", tuple(items))
    return ("list", tuple(frozen(item) for item in value))


class Values:
    """The dictionary of one history: ids in the order of first appearance."""

    def __init__(self) -> None:
        self._ids: dict[Any, int] = {None: NIL}
        self._originals: list[Any] = [None]

    def id(self, value: Any) -> int:
        """Return the id of a value, a new one when it was never seen."""
        kind = type(value)
        key = value if kind is str or kind is int else frozen(value)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self._originals)
            self._originals.append(value)
        return known

    def ids(self, values: Iterable[Any]) -> list[int]:
        """Return the ids of many values."""
        number = self.id
        return [number(value) for value in values]

    def __getitem__(self, number: int) -> Any:
        """The value of an id."""
        return self._originals[number]

    def __len__(self) -> int:
        return len(self._originals)

    def packed(self) -> tuple[bytes, Ints]:
        """Return all values as JSON text, and where each of them ends."""
        texts = [msgspec.json.encode(value) for value in self._originals]
        return b"".join(texts), np.cumsum([len(text) for text in texts], dtype=np.int64)


class PackedValues(Values):
    """A dictionary from a file; values that are not in it get ids after its own."""

    def __init__(self, text: bytes, ends: Ints) -> None:
        super().__init__()
        self._text = text
        self._ends = ends
        self._added: dict[Any, int] = {}

    def id(self, value: Any) -> int:
        """Return the id of a value, looked up by its text."""
        if value is None:
            return NIL
        key = frozen(value)
        if key not in self._added:
            texts = [msgspec.json.encode(value)]
            if isinstance(value, int | float) and not isinstance(value, bool):
                texts += [b"%d" % value, b"%.1f" % value] if value == int(value) else []
            found = [number for text in texts if (number := self._find(text)) >= 0]
            self._added[key] = found[0] if found else len(self)
            if not found:
                self._originals.append(value)
        return self._added[key]

    def _find(self, text: bytes) -> int:
        starts = np.concatenate([np.zeros(1, np.int64), self._ends[:-1]])
        same = np.flatnonzero(self._ends - starts == len(text))
        letters = np.frombuffer(self._text, np.uint8)
        for offset, letter in enumerate(text):
            same = same[letters[starts[same] + offset] == letter]
        return int(same[0]) if len(same) else -1

    def __getitem__(self, number: int) -> Any:
        """The value of an id."""
        if number >= len(self._ends):
            return self._originals[number - len(self._ends) + 1]
        start = int(self._ends[number - 1]) if number else 0
        return msgspec.json.decode(self._text[start : int(self._ends[number])])

    def __len__(self) -> int:
        return len(self._ends) + len(self._originals) - 1

    def packed(self) -> tuple[bytes, Ints]:
        """Return all values as JSON text, and where each of them ends."""
        added = [msgspec.json.encode(value) for value in self._originals[1:]]
        ends = int(self._ends[-1]) + np.cumsum([len(text) for text in added], dtype=np.int64)
        return self._text + b"".join(added), np.concatenate([self._ends, ends])


class Names:
    """Ids of a small set of names: functions, keys, processes, words of errors."""

    def __init__(self, names: Sequence[Any] = ()) -> None:
        self.names: list[Any] = list(names)

    @cached_property
    def _ids(self) -> dict[Any, int]:
        """The other way round, made when somebody asks: there may be very many processes."""
        return {name: i for i, name in enumerate(self.names)}

    def ids(self, names: Iterable[Any]) -> list[int]:
        """Return the ids of many names, new ones for those never seen."""
        known, out = self._ids, []
        for name in names:
            number = known.get(name)
            if number is None:
                number = known[name] = len(known)
                self.names.append(name)
            out.append(number)
        return out

    def find(self, name: Any) -> int:
        """Return the id of a name, -1 when it does not occur."""
        return self._ids.get(name, -1)
