"""`report.html`: one file that tells a run, complete without network and without JavaScript.

The page allows itself nothing: its own style sheet by hash, and no script, image, font or address.
Text from a system under test reaches it only through the template engine's escaping and the SVG
tree's, after control characters were written out.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.evidence import Evidence, Problem
from harness.note import LEFTOVER
from harness.results import Results
from harness.verdict import Outcome, Reason, Verdict
from reports import tables
from reports.findings import Finding, cited_ops, findings, in_short, refused
from reports.reading import Reading
from reports.story import MAX_LINES, when
from reports.sure import points
from reports.text import clean, clean_block, count, lasting

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"
_WORDS = {"pass": ("PASS", "✓"), "fail": ("FAIL", "✕"), "unknown": ("UNKNOWN", "?")}
_OF_PROPERTIES: dict[Outcome, str] = {"fail": "broken", "unknown": "not judged", "pass": "held"}

_REASONS = {
    Reason.MALFORMED: "The history breaks the rules of a history: nothing follows from it. "
    "Look at the ops around the line that is named; a worker or an import wrote them.",
    Reason.VACUOUS: "Too little happened to judge; a run in which nothing was at stake proves "
    "nothing. Run longer, freeze the holder for longer than its lease, or use a shorter lease.",
    Reason.FAULT_NOT_EFFECTIVE: "The system was not put to this test. The table of faults says "
    "what the probe saw, and winkle doctor what this machine can do.",
    Reason.CHECKER_LIMIT: "Judging took more time or memory than allowed. Check a shorter run, or "
    "one with fewer workers on one key.",
    Reason.HARNESS_ERROR: "Something in the harness or in an adapter failed, which says nothing "
    "about the system. Look at the logs in the run folder, then run again.",
}


def render(evidence: Evidence, results: Results) -> bytes:
    """Return the page; the same input gives the same bytes."""
    reading = Reading(evidence)
    verdict = results.verdict
    shown, listed, hidden = findings(verdict.anomalies, reading)
    if not shown and verdict.verdict == "pass" and (scene := refused(reading)):
        shown = [scene]
    main = shown[0] if shown else None
    cited = list(dict.fromkeys(i for f in shown for i in f.cited))
    cited += [i for a in listed for i in cited_ops(a)]
    around = (main.scene.start_ns, main.scene.end_ns) if main and main.scene else None
    chosen = tables.select_ops(reading, cited, around)
    lines = main.story.lines if main and main.anomaly else ()
    wrong = [i for line in lines if line.decisive for i in line.ops]
    linked = set(chosen).__contains__
    for finding in shown:
        finding.draw(linked)
    context = {
        "bar": _WORDS.get(verdict.verdict, _WORDS["unknown"]),
        "results": results,
        "verdict": verdict,
        "meta": _meta(reading, results),
        "broken": _broken(main),
        "counts": _counts(verdict, hidden),
        "reasons": [(u, _REASONS[u.reason]) for u in verdict.unknown],
        "main": main,
        "others": shown[1:],
        "listed": listed,
        "hidden": hidden,
        "in_short": in_short(main, reading),
        "sure": points(reading, main.anomaly if main else None, main.takeover if main else None),
        "margins": tables.margin_rows(verdict.margins),
        "faults": tables.fault_rows(evidence.windows),
        "faults_hidden": max(0, len(evidence.windows) - tables.MAX_FAULTS),
        "problems": _problems(evidence, results),
        "facts": tables.fact_rows(reading, results),
        "rows": tables.op_rows(reading, chosen, cited, wrong),
        "left_out": _left_out(reading, chosen),
        "linked": linked,
    }
    return _page(context)


def _page(context: dict[str, Any]) -> bytes:
    from markupsafe import Markup

    css = (_TEMPLATES / "report.css").read_text("utf-8") + _hover_rules()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    template = _environment().get_template("report.html.j2")
    text = template.render(
        **context,
        css=Markup(css),  # noqa: S704 - our own file; the hash in the page forbids any other
        csp=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )
    return text.encode("utf-8")


@cache
def _environment() -> "jinja2.Environment":
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[[Any], Any]] = {
        "svg": lambda text: Markup(text),  # noqa: S704, PLW0108 - serialised by an XML library
        "when": when,
        "cited": cited_ops,
    }
    environment.filters |= filters
    return environment


def _finalize(value: Any) -> Any:
    """Clean whatever reaches the page as a bare string; markup of our own passes."""
    return clean_block(value) if type(value) is str else value


def _hover_rules() -> str:
    """Pointing at a number of the story lights its mark in the picture, and the reverse."""
    return "".join(
        f".finding:has(.s{n}:hover,.s{n}:focus-within,.m{n}:hover,.m{n}:focus) .m{n}{{--lit:1}}"
        f".finding:has(.m{n}:hover,.m{n}:focus) .s{n}{{background:var(--lift)}}"
        for n in range(1, MAX_LINES + 1)
    )


def _problems(evidence: Evidence, results: Results) -> list[Problem]:
    """The problems that are not said anyway, as a leftover or as a reason for unknown."""
    said = {unknown.text for unknown in results.verdict.unknown}
    return [p for p in evidence.problems if p.text not in said and not p.text.startswith(LEFTOVER)]


def _meta(reading: Reading, results: Results) -> list[str]:
    spec = reading.evidence.spec
    parts = []
    if spec is not None:
        parts += [
            str(spec.lock) if spec.one_target else f"lock {spec.lock} · store {spec.store}",
            f"workload {spec.workload}",
            f"{count(spec.workers, 'worker')}, {count(spec.readers, 'reader')}",
            f"lease {spec.ttl_s:g} s",
            f"seed {spec.seed}",
        ]
    parts += [lasting(results.duration_s * 1e9), count(len(reading.evidence.history.ops), "op")]
    parts.append(results.began)
    return [clean(part, 200) for part in parts if part]


def _broken(main: Finding | None) -> tuple[str, str] | None:
    """The name of the gravest anomaly, and the property that it breaks."""
    if main is None or main.anomaly is None:
        return None
    return main.anomaly.name, main.must


def _counts(verdict: Verdict, hidden: int) -> str:
    parts = []
    if verdict.properties:
        of = Counter(p.verdict for p in verdict.properties)
        words = _OF_PROPERTIES
        if verdict.verdict == "unknown":  # what could not be judged must not be called kept
            words = {**words, "pass": "not broken"}
        told = [f"{of[outcome]} {word}" for outcome, word in words.items() if of[outcome]]
        parts.append(
            f"{count(len(verdict.properties), 'property', 'properties')}: {', '.join(told)}"
        )
    names = Counter(a.name for a in verdict.anomalies)
    if names:
        parts.append(
            ", ".join(f"{clean(name, 60)} {count(n, 'time')}" for name, n in names.items())
        )
    if len(verdict.anomalies) > 1:
        parts.append("the gravest is shown first")
    if hidden:
        parts.append(f"{hidden:,} are only in results.json")
    return " · ".join(parts)


def _left_out(reading: Reading, chosen: Sequence[int]) -> str:
    total = len(reading.evidence.history.ops)
    if len(chosen) == total:
        return "This is the whole history."
    return (
        f"{len(chosen):,} of {count(total, 'op')} are shown: those that this page names, and their "
        "neighbours in time on the same key. The whole history is in history.jsonl."
    )
