"""What a check found: the name of the anomaly, the rows that prove it, and a sentence.

A sentence is a template: `{0}` stands for the description of the first row, and so on, so that a
check needs no names of keys and values while it works on integers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.checking.columns import FAIL, INFO, NEVER, NO_TOKEN, Columns
from harness.checking.values import NOT_TOLD


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly: rows in the order in which to read them, the last one is the wrong one.

    `certain` is False when the rows leave another reading, which the sentence then names.
    """

    name: str
    rows: tuple[int, ...]
    template: str
    certain: bool = True


Named = Finding | Callable[[], Finding]
"""A finding, or how to name it: a check knows that something is wrong before it knows what."""


class RepeatedValuesError(Exception):
    """A read does not name one write, so the keys (dense numbers) need the search."""

    def __init__(self, keys: Iterable[int], reason: str = "a value was written twice") -> None:
        super().__init__(reason)
        self.keys = frozenset(keys)
        self.reason = reason


def sentence(columns: Columns, finding: Finding) -> str:
    """Return the sentence of a finding."""
    return finding.template.format(*(describe(columns, row) for row in finding.rows))


def describe(columns: Columns, row: int) -> str:
    """Return one call for a person: what it asked, what it got, where to find it."""
    f = columns.kinds.names[columns.kind[row]]
    words = [str(f)]
    argument, result = int(columns.value[row]), int(columns.result[row])
    if columns.expected[row] != NOT_TOLD:
        words.append(
            f"[{_value(columns, int(columns.expected[row]))}, {_value(columns, argument)}]"
        )
    elif argument != NOT_TOLD:
        words.append(_value(columns, argument))
    if result > 0 and result != argument:
        words.append(f"-> {_value(columns, result)}")
    token = max(int(columns.token[row]), int(columns.result_token[row]))
    if token > NO_TOKEN:
        words.append(f"(token {token})")
    if columns.outcome[row] == FAIL:
        words.append("refused")
    elif columns.outcome[row] == INFO:
        words.append("of unknown outcome")
    ended = columns.ret[row]
    until = "?" if ended == NEVER else _seconds(int(ended))
    op = int(columns.index[row])
    return f"{' '.join(words)} [op {op}, {_seconds(int(columns.call[row]))}..{until}]"


def _value(columns: Columns, number: int) -> str:
    text = repr(columns.values[number])
    return text if len(text) <= 60 else f"{text[:57]}..."


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.6f} s"
