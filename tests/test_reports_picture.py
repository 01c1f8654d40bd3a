"""The axis does not lie, labels do not touch, and every told moment has its place."""

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.axis import Axis, axis
from reports.findings import Finding, findings
from reports.picture import NARROW, WIDE, Format, render
from reports.reading import Reading
from reports.stage import Stage
from reports.svg import Label, place, spread, width_px
from tests.test_reports_samples import failing, ns

SPACE = "{http://www.w3.org/2000/svg}"
LONG_NS = 4_000_000_000


def finding() -> Finding:
    evidence, judged = failing(1)
    return findings(judged.verdict.anomalies, Reading(evidence))[0][0]


def draw(form: Format) -> ET.Element:
    found = finding()
    assert found.scene is not None
    return ET.fromstring(render(found.scene, found.story, "f0", "t", lambda _: True, form=form))  # noqa: S314 - made by us


def lay_out(start_ns: int, end_ns: int, moments: list[int], tail_ns: int | None = None) -> Axis:
    return axis(start_ns, end_ns, moments, left=100, right=1100, long_ns=LONG_NS, tail_ns=tail_ns)


def test_time_is_true_where_nothing_is_cut() -> None:
    shown = lay_out(0, ns(6), [ns(0.4), ns(2), ns(2.1), ns(5)])
    assert shown.cuts == ()
    assert shown.x(0) == 100
    assert shown.x(ns(3)) == pytest.approx(600)
    assert shown.x(ns(6)) == pytest.approx(1100)


def test_a_far_longer_gap_is_cut_in_its_middle_and_the_rest_keeps_one_scale() -> None:
    shown = lay_out(0, ns(64), [ns(1), ns(2), ns(62), ns(63)])
    assert len(shown.cuts) == 1
    before, after = shown.cuts[0]
    assert ns(2) < before.end_ns < after.start_ns < ns(62)
    scales = [(p.right - p.left) / (p.end_ns - p.start_ns) for p in shown.pieces]
    assert scales[0] == pytest.approx(scales[1])
    assert shown.x(ns(1)) - shown.x(0) > 100


def test_the_end_of_the_run_has_a_piece_of_its_own() -> None:
    shown = lay_out(0, ns(2), [ns(1)], tail_ns=ns(100))
    assert shown.x(ns(2)) < shown.x(ns(50)) < shown.x(ns(100)) < 1100
    assert all(x <= shown.x(ns(2)) for x, _ in shown.ticks())


@given(
    st.lists(st.integers(0, 10**12), min_size=2, max_size=30, unique=True),
    st.one_of(st.none(), st.just(10**13)),
)
def test_later_is_never_drawn_further_left(times: list[int], tail_ns: int | None) -> None:
    times.sort()
    shown = lay_out(times[0], times[-1], times, tail_ns)
    places = [shown.x(time_ns) for time_ns in times]
    assert all(a <= b for a, b in pairwise(places))
    assert all(100 <= x <= 1100.001 for x in places)
    ticks = [x for x, _ in shown.ticks()]
    assert len(ticks) <= 40
    assert all(a < b for a, b in pairwise(ticks))


@given(
    st.lists(st.tuples(st.floats(0, 1000), st.text(min_size=1, max_size=20)), max_size=12),
    st.lists(st.floats(50, 900), max_size=2),
)
def test_no_two_labels_touch(wanted: list[tuple[float, str]], cuts: list[float]) -> None:
    blocked = [(x, x + 30) for x in cuts]
    placed = place([Label(x, text) for x, text in wanted], 0, 1000, blocked)
    assert len(placed) == len(wanted)
    for one, other in combinations(placed, 2):
        if one.row == other.row:
            apart = one.left + one.label.width < other.left
            assert apart or other.left + other.label.width < one.left
    assert all(item.left >= 0 for item in placed)


@given(st.lists(st.floats(0, 1000), max_size=30))
def test_numbers_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    wanted.sort()
    spots = spread(wanted, 25, 0, 1000)
    assert len(spots) == len(wanted)
    assert all(b - a >= min(25, 1000 / len(wanted)) - 1e-6 for a, b in pairwise(spots))
    assert all(-1e-6 <= x <= 1000 + 1e-6 for x in spots)


@pytest.mark.parametrize("form", [WIDE, NARROW])
def test_every_moment_of_the_story_has_its_number_in_the_picture(form: Format) -> None:
    numbers = [
        int(badge.findtext(f"{SPACE}text") or "")
        for badge in draw(form).iter(f"{SPACE}a")
        if (badge.get("class") or "").startswith("badge")
    ]
    told = [line.number for line in finding().story.moments]
    # The end of the run has no room on a narrow screen.
    assert numbers == (told if form is WIDE else told[:-1])


def labels(root: ET.Element) -> list[tuple[float, float, float]]:
    """Left edge, right edge and baseline of all texts between the first lane and the axis."""
    found = []
    for text in root.iter(f"{SPACE}text"):
        style = text.get("class") or ""
        words = "".join(text.itertext())
        size = 14.0 if "wrong" in style else 15.0 if "lane" in style else 13.0
        width = width_px(words, size, bold="in" in style.split() or "wrong" in style)
        x, y = float(text.get("x") or 0), float(text.get("y") or 0)
        left = x - width / 2 if style == "in" else x
        if y > 40:
            found.append((left, left + width, y))
    return found


@pytest.mark.parametrize("form", [WIDE, NARROW])
def test_no_two_texts_of_a_picture_overlap(form: Format) -> None:
    root = draw(form)
    for group in root.iter(f"{SPACE}g"):
        if group.get("class") in ("axis", "bracket"):  # centred, and in rows of their own
            for text in group.findall(f"{SPACE}text"):
                text.set("class", "in")
    for one, other in combinations(labels(root), 2):
        if abs(one[2] - other[2]) < 12:
            assert one[1] <= other[0] or other[1] <= one[0], (one, other)


@pytest.mark.parametrize("form", [WIDE, NARROW])
def test_the_picture_shows_the_lanes_from_faults_to_resource(form: Format) -> None:
    root = draw(form)
    names = [t.text for t in root.iter(f"{SPACE}text") if t.get("class") == "lane"]
    assert names == ["Faults", "Lock service", "w1", "w2", "Resource"]
    text = " ".join(root.itertext())
    assert "frozen for 5 s" in text
    assert "no longer true" in text
    assert "stale window: 3.49 s" in text
    assert "w1 writes with token 33: accepted" in text
    crosses = [e for e in root.iter() if e.get("class") == "mark cross"]
    assert len(crosses) == 1


def test_the_hatch_begins_where_the_lease_ends_and_stops_where_the_worker_learns() -> None:
    found = finding()
    assert found.scene is not None
    lane = next(lane for lane in found.scene.lanes if lane.title == "w1")
    sure, stale = lane.rows[0].spans
    assert (sure.style, stale.style) == ("owner0", "owner0 hatched")
    assert sure.end_ns == stale.start_ns == ns(1.02 + 2.0)
    assert stale.end_ns == ns(1.02 + 5.485 + 0.031)
    assert [span.style for span in lane.rows[1].spans] == ["frozen"]


def test_a_write_that_is_no_part_of_the_finding_is_not_crossed() -> None:
    found = finding()
    assert found.scene is not None
    assert found.takeover is not None
    row = found.scene.lanes[-1].rows[0]
    assert [m.op for m in row.marks if m.style == "cross"] == [found.takeover.late.index]
    assert all(span.op != found.takeover.late.index for span in row.spans)
    assert [re.sub(r" ·.*", "", span.labels[0]) for span in row.spans] == [
        "token 33",
        "token 34",
        "token 34",
    ]


def test_a_stage_needs_no_width_of_time() -> None:
    evidence, _ = failing(1)
    reading = Reading(evidence)
    late = reading.of("write", "k0")[0]
    scene = Stage(reading, "k0", [5, 5], ["w1"], wrong=late, proof=()).scene(None, None, None)
    assert scene.start_ns < 5 < scene.end_ns
