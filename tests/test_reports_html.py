"""What must hold for every page: complete, safe, reproducible, and readable by anyone."""

import base64
import hashlib
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from harness.evidence import Evidence, Problem
from harness.history import History
from harness.note import Note
from harness.op import Op
from harness.results import Results
from harness.verdict import Anomaly, Property, Reason, Unknown, Verdict
from reports.html import render
from reports.tables import MAX_ROWS
from tests.test_reports_samples import Tape, failing, hold, ns, passing, record, results, undecided

SAMPLES = [failing, passing, undecided]
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\x00\x1b[31m\r\n\u202e\ud800{{7*7}}"
CSS = Path(__file__).parent.parent / "reports" / "templates" / "report.css"


class Page(HTMLParser):
    """A page as a browser sees it: its elements, ids, links and text."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.source = data.decode("utf-8")
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.inside: list[str] = []
        self.style = ""
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element, its id and where it leads."""
        self.tags.add(tag)
        self.attributes += attrs
        named = dict(attrs)
        if (ident := named.get("id")) is not None:
            self.ids.append(ident)
        if (link := named.get("href")) is not None:
            self.links.append(link)
        self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element, and what was left open in it."""
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Keep text and style apart."""
        if self.inside and self.inside[-1] == "style":
            self.style += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return " ".join(" ".join(self.texts).split())


def page(evidence: Evidence, judged: Results) -> Page:
    return Page(render(evidence, judged))


def is_harmless(shown: Page) -> None:
    """Nothing on the page can run, load or leave it."""
    assert not shown.tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    for name, value in shown.attributes:
        assert not name.startswith("on"), name
        assert name not in {"style", "src", "srcset", "xlink:href", "action"}, name
        assert "javascript:" not in (value or "")
    assert all(link.startswith("#") for link in shown.links)
    assert not re.search(r"url\((?!#)|@import", shown.style)
    assert re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", shown.source) is None


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_page_is_harmless_and_whole(sample: Callable[[], tuple[Evidence, Results]]) -> None:
    shown = page(*sample())
    is_harmless(shown)
    assert len(set(shown.ids)) == len(shown.ids)
    assert {link[1:] for link in shown.links} <= set(shown.ids)
    for ident in (v for k, v in shown.attributes if k == "aria-labelledby" and v):
        assert set(ident.split()) <= set(shown.ids)


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_allows_itself_its_own_style_and_nothing_else(
    sample: Callable[[], tuple[Evidence, Results]],
) -> None:
    shown = page(*sample())
    policy = next(v for k, v in shown.attributes if k == "content" and v and "default-src" in v)
    digest = base64.b64encode(hashlib.sha256(shown.style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    # A policy rules what follows it, so it has to stand before the style.
    assert shown.source.index("Content-Security-Policy") < shown.source.index("<style>")


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_same_run_gives_the_same_bytes(
    sample: Callable[[], tuple[Evidence, Results]],
) -> None:
    assert render(*sample()) == render(*sample())


def test_the_pictures_are_well_formed_xml() -> None:
    source = render(*failing()).decode()
    pictures = re.findall(r"<svg[^>]*class=\"scene.*?</svg>", source, re.DOTALL)
    assert len(pictures) == 6  # three findings, for wide and for narrow screens
    for text in pictures:
        root = ET.fromstring(text)  # noqa: S314 - made by us
        space = "{http://www.w3.org/2000/svg}"
        assert root.find(f"{space}title") is not None
        assert root.find(f"{space}desc") is not None


def test_every_op_of_every_finding_has_a_row() -> None:
    evidence, judged = failing()
    shown = page(evidence, judged)
    for anomaly in judged.verdict.anomalies:
        for index in anomaly.ops:
            assert f"op-{index}" in shown.ids
            assert f"#op-{index}" in shown.links


def test_a_failing_page_answers_who_what_and_why_before_the_picture() -> None:
    evidence, judged = failing()
    source = page(evidence, judged).source
    top = " ".join(re.sub(r"<[^>]+>", " ", source[: source.index("<figure>")]).split())
    assert "✕ FAIL" in top
    assert judged.verdict.headline in top
    assert "Who wrote too late w1 (token 33), the old owner" in top
    assert "What it did It wrote “w1-4” to “k0” over “w2-49”" in top
    assert "The resource keeps no highest token and takes every write" in top


def test_findings_of_one_write_are_told_once() -> None:
    shown = page(*failing())
    assert shown.ids.count("f0") == 1
    assert "f3" not in shown.ids
    assert shown.text.count("The same write also breaks lost-update") == 3


def test_a_page_says_what_proves_the_faults_and_what_is_unknown() -> None:
    text = page(*failing()).text
    assert "3 of 3 faults proven to be in force" in text
    assert "3 of 3 threads in state T (/proc)" in text
    assert "1 of 455 calls ended without a certain outcome (1 acquire)" in text
    assert "it holds whichever way they went" in text
    assert "The resource keeps no log of its own" in text


def test_a_passing_page_shows_the_refusal() -> None:
    evidence, judged = passing()
    shown = page(evidence, judged)
    assert "✓ PASS" in shown.text
    assert "A late write, refused" in shown.text
    assert "The resource refuses it: it has seen a higher token (fenced" in shown.text
    assert ("class", "mark refused here") in shown.attributes
    assert ("class", "mark cross") not in shown.attributes


def test_an_unknown_page_begins_with_the_reasons() -> None:
    evidence, judged = undecided()
    shown = page(evidence, judged)
    assert "? UNKNOWN" in shown.text
    reason = shown.text.index("0 takeovers while an old owner was out")
    assert reason < shown.text.index("Left over after the run")
    assert reason < shown.text.index("What is known")
    assert "1 process of w2 is still stopped (pid 4711)" in shown.text
    assert "never triggered: no holder came to lease-checked" in shown.text
    assert "the worker stopped answering" in shown.text


def test_a_leftover_is_said_once() -> None:
    evidence, judged = undecided()
    leftover = judged.leftover[0]
    evidence = altered(evidence, problems=[Problem(f"leftover: {leftover}")])
    assert page(evidence, judged).text.count(f"! Left over after the run. {leftover}") == 1
    assert "! Problem" not in page(evidence, judged).text


def test_a_thousand_faults_are_counted_and_a_hundred_are_listed() -> None:
    evidence, judged = failing(1)
    data = render(altered(evidence, windows=[evidence.windows[0]] * 1_100), judged)
    assert "1,100 of 1,100 faults proven to be in force" in Page(data).text
    assert "1,000 more are in faults.jsonl" in Page(data).text
    assert len(data) < 300_000


def test_properties_of_a_run_that_was_not_judged_are_not_called_kept() -> None:
    evidence, judged = passing()
    assert "5 properties: 1 not judged, 4 held" in page(evidence, judged).text
    verdict = msgspec.structs.replace(judged.verdict, verdict="unknown")
    shown = page(evidence, msgspec.structs.replace(judged, verdict=verdict))
    assert "5 properties: 1 not judged, 4 not broken" in shown.text


def altered(evidence: Evidence, **changes: Any) -> Evidence:
    return Evidence(**{**evidence.__dict__, **changes})


def hostile(text: str) -> tuple[Evidence, Results]:
    """The failing run, with `text` in every place that a foreign system or a person can fill."""
    evidence, judged = failing(1)
    names = {"w1": f"w1{text}", "w2": f"w2{text}", "w3": "w3", "r1": "r1"}
    ops = [
        msgspec.structs.replace(
            op,
            worker=names[op.worker or ""],
            key=text,
            value=text if op.f == "write" else {text: [text]} if op.value is None else op.value,
            error=None if op.error is None else f"{op.error} {text}",
        )
        for op in evidence.history.ops
    ]
    notes = [
        msgspec.structs.replace(n, worker=names[n.worker or ""], key=text, why=text)
        for n in evidence.notes
    ]
    windows = [
        msgspec.structs.replace(
            w, kind=f"pause{text}", nodes=(names["w1"],), who=text, at=text, text=text
        )
        for w in evidence.windows
    ]
    anomalies = tuple(
        msgspec.structs.replace(a, sentence=text, key=text) for a in judged.verdict.anomalies
    )
    odd = Anomaly(name=text, sentence=text, ops=(0, 1, 5), time_ns=5, key=text)
    verdict = msgspec.structs.replace(
        judged.verdict,
        headline=text,
        anomalies=(*anomalies, odd),
        unknown=(Unknown(reason=Reason.VACUOUS, text=text),),
        properties=(Property(name=text, verdict="fail", checked=1, broken=1, note=text),),
        stats={text: text},
        margins={text: text, "of_s": {text: 1.5}},
        notes=(text,),
    )
    judged = msgspec.structs.replace(
        judged,
        verdict=verdict,
        run=text,
        command=text,
        began=text,
        error=text,
        leftover=(text,),
        facts={text: text},
    )
    evidence = Evidence(
        history=History(ops),
        spec=evidence.spec,
        notes=notes,
        windows=windows,
        problems=[Problem(text, text, 1)],
        fence=text,
        final_ns=evidence.final_ns,
        facts={text: text},
    )
    return evidence, judged


def test_hostile_text_stays_text() -> None:
    shown = page(*hostile(HOSTILE))
    is_harmless(shown)
    assert "<img src=x onerror=alert(1)>" in shown.text
    assert "\\x00\\x1b[31m" in shown.text
    assert "\\u202e" in shown.text
    assert "{{7*7}}" in shown.text
    for text in re.findall(r"<svg[^>]*class=\"scene.*?</svg>", shown.source, re.DOTALL):
        ET.fromstring(text)  # noqa: S314 - made by us


def test_a_megabyte_of_text_is_cut_and_its_length_is_said() -> None:
    data = render(*hostile("x" * 1_000_000))
    assert len(data) < 1_000_000
    assert b"\xe2\x80\xa6 (1,000,000 characters)" in data


def many(ops: int) -> tuple[Evidence, Results]:
    """A long run with one late write in it."""
    tape, start_s, token = Tape(), 0.1, 1
    while len(tape.calls) * 2 < ops:
        hold(tape, f"w{1 + token % 3}", token, start_s, start_s + 1.9, first=token * 20)
        start_s, token = start_s + 2.0, token + 1
    evidence, _ = record(tape, [], fence="none", store="valkey")
    history = evidence.history
    writes = [i for i, op in enumerate(history.ops) if op.f == "write" and op.type == "invoke"]
    late, before = writes[len(writes) // 2], writes[len(writes) // 2 - 1]
    anomalies = tuple(
        Anomaly(
            name="stale-owner-write",
            sentence=f"finding {n}",
            ops=(before, late),
            time_ns=history.ops[late].time_ns,
            details={"stale_write": writes[-1 - n]},
        )
        for n in range(300)
    )
    verdict = Verdict(verdict="fail", headline="many", anomalies=anomalies)
    return evidence, results(verdict, 1000.0)


def taken(of: tuple[Evidence, Results]) -> tuple[float, bytes]:
    """Return what a page took of the processor, in seconds, and the page."""
    began = time.process_time()
    data = render(*of)
    return time.process_time() - began, data


def test_a_long_history_renders_fast_and_small() -> None:
    few_s, _ = taken(many(2_000))
    evidence, judged = many(20_000)
    assert len(evidence.history.ops) >= 20_000
    took_s, data = taken((evidence, judged))
    assert took_s < 20 * max(few_s, 0.1)
    assert len(data) < 2_000_000
    shown = Page(data)
    assert sum(ident.startswith("op-") for ident in shown.ids) <= MAX_ROWS
    assert re.search(r"\d+ of 20,\d+ ops are shown", shown.text)
    assert "are not listed here; all are in results.json" in shown.text


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [Op(process=0, type="ok", f="read", time_ns=1)],
        [
            Op(process=0, type="invoke", f="x", time_ns=5),
            Op(process=1, type="invoke", f="x", time_ns=1),
        ],
        [Op(process=0, type="invoke", f="write", key="k", value=1, time_ns=0)],
    ],
)
def test_empty_malformed_and_open_histories_make_a_page(ops: list[Op]) -> None:
    unknown = Unknown(reason=Reason.MALFORMED, text="line 2: time goes back")
    verdict = Verdict(
        verdict="unknown",
        headline="This run cannot be judged.",
        unknown=(unknown,),
        anomalies=(Anomaly(name="lost-ack", sentence="x", ops=(0, 1, 99), time_ns=0),),
    )
    shown = page(Evidence(History(ops)), results(verdict))
    is_harmless(shown)
    assert "line 2: time goes back" in shown.text
    assert all(f"op-{i}" in shown.ids for i in range(len(ops)))


def test_a_malformed_history_shows_the_ops_around_the_mistake() -> None:
    ops = [Op(process=i, type="invoke", f="read", time_ns=i) for i in range(300)]
    ops[250] = Op(process=9999, type="ok", f="read", time_ns=250)
    verdict = Verdict(verdict="unknown", headline="x")
    shown = page(Evidence(History(ops)), results(verdict))
    assert "completes read without an invocation" in shown.text
    assert "op-250" in shown.ids
    assert "op-10" not in shown.ids


@pytest.mark.parametrize("value", [None, "x", -1, 10**30, 1.5, [1], {"a": 1}, True])
def test_details_of_any_shape_make_a_page(value: Any) -> None:
    evidence, judged = failing(1)
    names = (
        "stale_grant",
        "newer_grant",
        "stale_write",
        "newer_write",
        "lease_end_ns",
        "window_s",
        "lost",
        "proof",
    )
    for name in names:
        anomalies = tuple(
            msgspec.structs.replace(a, details={**a.details, name: value})
            for a in judged.verdict.anomalies
        )
        verdict = msgspec.structs.replace(judged.verdict, anomalies=anomalies)
        is_harmless(page(evidence, msgspec.structs.replace(judged, verdict=verdict)))


def test_a_finding_of_an_unknown_name_gets_its_calls_and_its_sentence() -> None:
    evidence, judged = failing(1)
    odd = Anomaly(
        name="odd-thing", sentence="It is odd.", ops=(44, 45, 97), time_ns=ns(3), key="k0"
    )
    verdict = Verdict(verdict="fail", headline="Odd.", anomalies=(odd,))
    shown = page(evidence, msgspec.structs.replace(judged, verdict=verdict))
    assert "w2 asks for the lock “k0” and gets it with token 34" in shown.text
    assert "It is odd." in shown.text
    assert "svg" in shown.tags


def test_beliefs_are_said_to_be_concluded_where_none_was_reported() -> None:
    evidence, judged = failing(1)
    silent = altered(evidence, notes=[n for n in evidence.notes if n.kind == "phase"])
    assert "must believe" in page(silent, judged).text
    assert "no worker reported its belief" in page(silent, judged).text
    assert "must believe" not in page(evidence, judged).text


def test_notes_of_other_kinds_are_no_beliefs() -> None:
    evidence, judged = failing(1)
    mark = Note(time_ns=1, worker="w1", kind="phase", phase="acquired", key="k0")
    more = altered(evidence, notes=[mark, *evidence.notes])
    assert render(more, judged) == render(evidence, judged)


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", block))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_marks_have_enough_contrast(theme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", CSS.read_text("utf-8"), re.DOTALL)
    named = colours(blocks[theme])
    for paper in ("paper", "lift"):
        for text in ("ink", "quiet", "accent", "wrong", "info", "fail", "good"):
            assert contrast(named[text], named[paper]) >= 4.5, (text, paper)
    for mark in ("owner0", "owner1", "owner2", "owner3", "owner4", "frozen"):
        assert contrast(named[mark], named["paper"]) >= 3, mark


def test_no_text_is_smaller_than_12_pixels() -> None:
    sizes = [
        float(size) for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", CSS.read_text())
    ]
    assert sizes
    assert min(sizes) >= 13
