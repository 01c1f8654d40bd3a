"""The little of SVG that the picture needs: escaped elements, text widths, labels kept apart.

Elements are built as a tree and serialised by the standard library, so text can never become
markup.  Colours and fonts live in the page's style sheet; there are no inline styles, which lets
the page forbid them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from reports.text import clean

Element = ET.Element
TEXT_PX = 13.0
_APART = 6.0


def add(parent: Element, tag: str, text: str | None = None, **attributes: str | float) -> Element:
    """Append an element; `_` in names becomes `-`, and `class_` is `class`.  Text is cleaned."""
    named = {
        name.rstrip("_").replace("_", "-"): clean(value)
        if isinstance(value, str)
        else number(value)
        for name, value in attributes.items()
    }
    element = ET.SubElement(parent, tag, named)
    if text is not None:
        element.text = clean(text)
    return element


def number(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def serialise(root: Element) -> str:
    """The element as markup that is both valid XML and valid in an HTML page."""
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def width_px(text: str, size_px: float = TEXT_PX, *, bold: bool = False) -> float:
    """About how wide a text is: rather too wide, since the reader's font is not known."""
    size_px *= 1.1 if bold else 1.0
    wide = sum(1 for char in text if ord(char) >= 0x2E80)
    narrow = sum(1 for char in text if char in "iljt.,:;'|!·()[] “”")
    return size_px * (0.63 * (len(text) - wide - narrow) + 0.38 * narrow + 1.05 * wide)


@dataclass(frozen=True)
class Label:
    """Words that belong to `x`: written to its right, or to its left where there is no room."""

    x: float
    text: str
    style: str = ""

    @property
    def width(self) -> float:
        """About how wide it is when written."""
        strong = "wrong" in self.style or "right" in self.style
        return width_px(self.text, 14.0 if strong else TEXT_PX, bold=strong)


@dataclass(frozen=True)
class Placed:
    """A label with its left edge and its row."""

    label: Label
    left: float
    row: int


def place(
    labels: Sequence[Label],
    left: float,
    right: float,
    blocked: Sequence[tuple[float, float]] = (),
) -> list[Placed]:
    """Give each label a row and a side such that no two touch; greedy, so few rows, not the fewest.

    `blocked` are stretches where nothing may be written; a label that fits nowhere ignores them.
    """
    placed: list[Placed] = []
    rows: list[list[tuple[float, float]]] = []
    for label in labels:
        width = label.width
        wanted = [label.x, label.x - width, *(end + _APART for _, end in blocked)]
        wanted += [start - width - _APART for start, _ in blocked]
        starts = [max(left, min(x, right - width)) for x in wanted]
        row, start = _spot([*rows, list(blocked)], starts, width)
        if row >= len(rows):
            rows.append(list(blocked))
        rows[row].append((start, start + width))
        placed.append(Placed(label, start, row))
    return placed


def _spot(
    rows: Sequence[Sequence[tuple[float, float]]], starts: Sequence[float], width: float
) -> tuple[int, float]:
    """The first free place: near sides before far ones, upper rows before lower ones."""
    for side in (starts[:2], starts[2:]):
        for row, used in enumerate(rows):
            for start in side:
                if all(start + width + _APART <= a or b + _APART <= start for a, b in used):
                    return row, start
    return len(rows) - 1, starts[0]


def spread(wanted: Sequence[float], gap: float, left: float, right: float) -> list[float]:
    """Positions near the wanted ones (in ascending order) that keep `gap` between neighbours."""
    if not wanted:
        return []
    gap = min(gap, (right - left) / len(wanted))
    # Groups that touch are merged and centred on the mean of what their members want.
    groups: list[list[float]] = []
    for x in wanted:
        groups.append([x])
        while len(groups) > 1 and _start(groups[-2], gap, left, right) + gap * len(
            groups[-2]
        ) > _start(groups[-1], gap, left, right):
            last = groups.pop()
            groups[-1] += last
    return [
        _start(group, gap, left, right) + gap * i for group in groups for i in range(len(group))
    ]


def _start(group: Sequence[float], gap: float, left: float, right: float) -> float:
    length = gap * (len(group) - 1)
    middle = sum(group) / len(group)
    return max(left, min(middle - length / 2, right - length))
