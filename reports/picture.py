"""The picture of one scene as inline SVG.

Form carries the meaning, and colour only repeats it: solid is true, hatched is no longer true,
dotted is frozen, a cross is the write that should not have happened, an open ring with a stroke is
a write that was refused.  The numbers on top are the numbers of the story.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree as ET

from reports.axis import Axis, axis
from reports.scene import Bracket, Lane, Mark, Row, Scene, Span
from reports.story import Line, Story
from reports.svg import Element, Label, add, number, place, serialise, spread, width_px
from reports.text import at, lasting

_RAIL_Y, _TOP = 15.0, 50.0
_BAR, _THIN, _GAP, _PAD, _WORDS = 26.0, 20.0, 5.0, 11.0, 19.0
_ABOVE = 26.0
_OWNERS = 5


@dataclass(frozen=True)
class Format:
    """How wide the picture is and where its time begins and ends, in units of about a pixel.

    `above`: the names of the lanes stand above them, since there is no room at their left.
    """

    name: str
    width: float
    left: float
    right: float
    above: bool


WIDE = Format("wide", 1120, 152, 1102, above=False)
NARROW = Format("narrow", 380, 6, 374, above=True)


def render(
    scene: Scene,
    story: Story,
    ident: str,
    title: str,
    linked: Callable[[int], bool],
    *,
    form: Format = WIDE,
) -> str:
    """Draw a scene.  `ident` makes ids unique in the page; `linked`: has an op an anchor in it."""
    if form.above:
        scene = replace(scene, tail_ns=None)
    return serialise(_Picture(scene, story, ident, linked, form).draw(title))


class _Picture:
    def __init__(
        self,
        scene: Scene,
        story: Story,
        ident: str,
        linked: Callable[[int], bool],
        form: Format,
    ) -> None:
        self.scene, self.story, self.linked, self.form = scene, story, linked, form
        self.target = ident
        self.ident = ident if form is WIDE else f"{ident}-{form.name}"
        self.axis: Axis = axis(
            scene.start_ns,
            scene.end_ns,
            scene.moments,
            left=form.left,
            right=form.right,
            long_ns=scene.long_ns,
            tail_ns=scene.tail_ns,
        )
        self.blocked = [(a.right, b.left) for a, b in self.axis.cuts]
        self.root = ET.Element("svg", {"class": f"scene {form.name}", "role": "img"})
        self.y = _TOP

    def draw(self, title: str) -> Element:
        """All layers from back to front."""
        self.root.set("xmlns", "http://www.w3.org/2000/svg")
        self.root.set("aria-labelledby", f"{self.ident}-title {self.ident}-desc")
        add(self.root, "title", title, id=f"{self.ident}-title")
        desc = "The numbered story below the picture tells the same, line by line."
        add(self.root, "desc", desc, id=f"{self.ident}-desc")
        self._patterns()
        guides = add(self.root, "g", class_="guides")
        for lane in self.scene.lanes:
            if lane.title == "Resource" and self.scene.bracket is not None:
                self._bracket(self.scene.bracket)
            self._lane(lane)
        bottom = self.y
        self._cuts(bottom)
        self._ticks(bottom)
        self._rail(guides, bottom)
        height = self.y + 34
        self.root.set("viewBox", f"0 0 {number(self.form.width)} {number(height)}")
        return self.root

    def _patterns(self) -> None:
        defs = add(self.root, "defs")
        for i in range(_OWNERS):
            hatch = add(
                defs,
                "pattern",
                id=f"{self.ident}-hatch{i}",
                width=7,
                height=7,
                patternUnits="userSpaceOnUse",
                patternTransform="rotate(45)",
            )
            add(hatch, "rect", width=7, height=7, class_="paper")
            add(hatch, "rect", width=2.5, height=7, class_=f"ink owner{i}")
        dots = add(
            defs,
            "pattern",
            id=f"{self.ident}-frozen",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        )
        add(dots, "rect", width=6, height=6, class_="ice")
        add(dots, "circle", cx=1.5, cy=1.5, r=1, class_="icedot")
        add(dots, "circle", cx=4.5, cy=4.5, r=1, class_="icedot")

    def _lane(self, lane: Lane) -> None:
        add(self.root, "line", x1=0, x2=self.form.width, y1=self.y, y2=self.y, class_="rule")
        self._name(lane)
        begin: float = self.y
        labels: list[Label] = []
        self.y += _PAD
        for row in lane.rows:
            labels += self._row(row)
            self.y += (_THIN if row.thin else _BAR) + _GAP
        labels.sort(key=lambda label: label.x)
        placed = place(labels, self.form.left, self.form.right, self.blocked)
        for item in placed:
            y = self.y + _WORDS * item.row + 13
            add(
                self.root,
                "text",
                item.label.text,
                x=item.left,
                y=y,
                class_=f"words {item.label.style}",
            )
        rows = 1 + max((item.row for item in placed), default=-1)
        self.y = max(
            self.y + _WORDS * rows + _PAD - _GAP, begin + 2 * _PAD + (0 if self.form.above else 40)
        )

    def _name(self, lane: Lane) -> None:
        y = self.y + _PAD
        title = add(self.root, "text", lane.title[:18], x=0, y=y + 18, class_="lane")
        if self.form.above or lane.second:
            add(title, "tspan", lane.sub, dx=6, class_="sub")
        elif lane.sub:
            add(self.root, "text", lane.sub, x=0, y=y + 37, class_="sub")
        if self.form.above:
            self.y += _ABOVE
        elif lane.second:
            add(self.root, "text", lane.second, x=0, y=y + _BAR + _GAP + 15, class_="sub")

    def _row(self, row: Row) -> list[Label]:
        height = _THIN if row.thin else _BAR
        labels: list[Label] = []
        large = [m for m in row.marks if m.style in ("cross", "refused here", "read")]
        avoid = [(x - 13, x + 13) for x in sorted(self.axis.x(m.time_ns) for m in large)]
        drawn: set[tuple[str, int, int]] = set()
        for span in row.spans:
            # Pulses come by the thousand: what falls on the same pixels is drawn once.
            left, right = self.axis.x(span.start_ns), self.axis.x(span.end_ns)
            place_px = (span.style, int(left / 2), int(right / 2))
            if place_px not in drawn:
                drawn.add(place_px)
                labels += self._span(span, height, avoid)
        for mark in self._thinned(row.marks):
            labels += self._mark(mark, height)
        return labels

    def _thinned(self, marks: Sequence[Mark]) -> list[Mark]:
        """Without the ticks that would fall on another, and what lies outside; writes go first."""
        found: list[Mark] = []
        taken: set[int] = set()
        for mark in sorted(marks, key=lambda mark: (mark.style != "act write", mark.time_ns)):
            inside = self.scene.start_ns <= mark.time_ns <= self.scene.end_ns
            if not inside and mark.time_ns != self.scene.tail_ns:
                continue
            spot = int(self.axis.x(mark.time_ns) / 2.5)
            if mark.style in ("act", "act write", "unknown", "refused"):
                if spot in taken:
                    continue
                taken.add(spot)
            found.append(mark)
        return found

    def _span(self, span: Span, height: float, avoid: Sequence[tuple[float, float]]) -> list[Label]:
        left = self.axis.x(max(span.start_ns, self.scene.start_ns))
        right = self.axis.x(min(span.end_ns, self.scene.end_ns))
        width = max(right - left, 5.0)
        group = self._linked(span.op, span.title or span.labels[0])
        group.set("class", f"bar {span.style}")
        pattern = self._pattern(span.style)
        for name in ("pattern", "box") if pattern else ("box",):
            box = add(group, "rect", x=left, y=self.y, width=width, height=height, rx=3)
            box.set("class", name)
            if name == "pattern":
                box.set("fill", f"url(#{self.ident}-{pattern})")
        start, end = self._room(left, left + width, avoid)
        for text in span.labels:
            if width_px(text, bold=True) + 10 <= end - start:
                y = self.y + height / 2 + 4.5
                add(group, "text", text, x=(start + end) / 2, y=y, class_="in")
                return []
        return [Label(left, span.labels[-1], "under")] if span.must and span.labels else []

    def _room(
        self, left: float, right: float, avoid: Sequence[tuple[float, float]] = ()
    ) -> tuple[float, float]:
        """The widest stretch between two positions without a cut and without what to `avoid`."""
        rooms, start = [], left
        for a, b in sorted([*self.blocked, *avoid]):
            if a < right and b > left:
                rooms.append((start, a))
                start = b
        return max([*rooms, (start, right)], key=lambda room: room[1] - room[0])

    @staticmethod
    def _pattern(style: str) -> str | None:
        if style == "frozen":
            return "frozen"
        return (
            f"hatch{style[5]}" if style.endswith("hatched") and style.startswith("owner") else None
        )

    def _linked(self, op: int | None, title: str) -> Element:
        """A group, or a link to the op's row where the page has one."""
        if op is not None and self.linked(op):
            group = add(self.root, "a", href=f"#op-{op}")
        else:
            group = add(self.root, "g")
        if title:
            add(group, "title", title)
        return group

    def _mark(self, mark: Mark, height: float) -> list[Label]:
        x, middle = self.axis.x(mark.time_ns), self.y + height / 2
        plain = mark.style.startswith("act")
        # Ticks are many: as links they would be as many stops for the keyboard.
        group = self._linked(None if plain else mark.op, mark.title)
        group.set("class", f"mark {mark.style}")
        match mark.style.split()[0]:
            case "act":
                reach = height / 2 if " " in mark.style else height / 2 - 5
                add(group, "line", x1=x, x2=x, y1=middle - reach, y2=middle + reach)
            case "end":
                add(group, "line", x1=x, x2=x, y1=self.y - 4, y2=self.y + height + 4)
            case "cross":
                for dy in (-9.0, 9.0):
                    add(group, "line", x1=x - 9, x2=x + 9, y1=middle - dy, y2=middle + dy)
            case "refused":
                radius = 9.0 if "here" in mark.style else 5.0
                add(group, "circle", cx=x, cy=middle, r=radius)
                reach = radius * 0.7
                add(group, "line", x1=x - reach, x2=x + reach, y1=middle + reach, y2=middle - reach)
            case "read":
                add(group, "path", d=f"M{number(x)} {number(middle - 8)}l8 8l-8 8l-8-8z")
            case _:
                add(group, "text", "?", x=x, y=middle + 5, class_="query")
        style = {"cross": "wrong", "refused here": "right"}.get(mark.style, "")
        return [Label(x if mark.style == "end" else x - 9, mark.words, style)] if mark.words else []

    def _bracket(self, bracket: Bracket) -> None:
        left, right = self.axis.x(bracket.start_ns), self.axis.x(bracket.end_ns)
        add(self.root, "line", x1=0, x2=self.form.width, y1=self.y, y2=self.y, class_="rule")
        group = add(self.root, "g", class_="bracket")
        y = self.y + 34
        add(group, "path", d=f"M{number(left)} {number(y + 7)}v-9H{number(right)}v9")
        width = width_px(bracket.words, 15, bold=True)
        middle = sum(self._room(left, right)) / 2
        x = max(self.form.left + width / 2, min(middle, self.form.right - width / 2))
        add(group, "text", bracket.words, x=x, y=self.y + 22)
        self.y += 48

    def _cuts(self, bottom: float) -> None:
        for before, after in self.axis.cuts:
            left, right = before.right, after.left
            group = add(self.root, "g", class_="cut")
            points = int((bottom - _TOP) // 8) + 1
            edges = [
                [(x + (3 if i % 2 else -3), _TOP + 8 * i) for i in range(points + 1)]
                for x in (left + 9, right - 9)
            ]
            shape = [*edges[0], *reversed(edges[1])]
            add(group, "polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in shape))
            for edge in edges:
                add(group, "polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in edge))
        names = []
        for before, after in self.axis.cuts:
            text = f"{lasting(after.start_ns - before.end_ns)} cut out"
            middle = (before.right + after.left) / 2
            names.append(Label(middle - width_px(text) / 2, text))
        for item in place(names, self.form.left, self.form.width):
            y = bottom + 42 + _WORDS * item.row
            add(self.root, "text", item.label.text, x=item.left, y=y, class_="sub")
            self.y = max(self.y, y - 22)

    def _ticks(self, bottom: float) -> None:
        group = add(self.root, "g", class_="axis")
        add(group, "line", x1=self.form.left, x2=self.form.right, y1=bottom, y2=bottom)
        if not self.form.above:
            add(group, "text", "time", x=0, y=bottom + 22, class_="sub start")
        last = 0.0
        for x, text in self.axis.ticks():
            add(group, "line", x1=x, x2=x, y1=bottom, y2=bottom + 6)
            if x - last >= 44 and x + 24 <= self.form.width:
                add(group, "text", text, x=x, y=bottom + 22)
                last = x
        if self.scene.tail_ns is not None:
            x = self.axis.x(self.scene.tail_ns)
            add(group, "line", x1=x, x2=x, y1=bottom, y2=bottom + 6)
            add(group, "text", at(self.scene.tail_ns), x=x, y=bottom + 22)

    def _rail(self, guides: Element, bottom: float) -> None:
        """The numbers of the story at their times, spread where they would touch."""
        lines = [line for line in self.story.moments if self._drawn(line)]
        wanted = [self.axis.x(line.time_ns or 0) for line in lines]
        spots = spread(wanted, 25, self.form.left + 7, self.form.right - 7)
        for line, x, spot in zip(lines, wanted, spots, strict=True):
            named = f"m{line.number}" + (" decisive" if line.decisive else "")
            path = f"M{number(spot)} {number(_RAIL_Y + 10)}L{number(x)} {number(_TOP - 8)}"
            add(guides, "path", d=f"{path}V{number(bottom)}", class_=f"guide {named}")
            badge = add(
                self.root,
                "a",
                href=f"#{self.target}-s{line.number}",
                id=f"{self.ident}-m{line.number}",
                class_=f"badge {named}",
            )
            add(badge, "title", f"{at(line.time_ns or 0)}: {line.text}")
            add(badge, "circle", cx=spot, cy=_RAIL_Y, r=10.5)
            add(badge, "text", str(line.number), x=spot, y=_RAIL_Y + 4.5)

    def _drawn(self, line: Line) -> bool:
        if line.time_ns is None:
            return False
        inside = self.scene.start_ns <= line.time_ns <= self.scene.end_ns
        return inside or line.time_ns == self.scene.tail_ns
