"""The tables of a page: properties, margins, faults, facts, and the ops of the relevant time.

The whole history stays in `history.jsonl`; a page shows at most `MAX_ROWS` ops and says what it
left out.  The ops that prove a finding come first, then their neighbours in time.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.history import Outcome
from harness.results import Results
from harness.window import Window
from reports.phrase import GLYPHS
from reports.reading import Reading
from reports.text import at, clean, count, lasting, show

MAX_ROWS = 200
MAX_FAULTS = 100
_AROUND_MISTAKE = 20

_MARGINS = {
    "renewal_margin_s": "Renewal margin: lease left when a renewal was answered, at the least",
    "takeover_median_s": "Takeover time: from the end of a lease to the next owner, median",
    "takeover_max_s": "Takeover time, longest",
    "stale_attempts": "Writes of owners that had lost the lock: attempted",
    "stale_refused": "Writes of owners that had lost the lock: refused by the resource",
    "stale_accepted": "Writes of owners that had lost the lock: accepted after a newer owner's",
    "stale_share": "Share of those attempts that were accepted",
    "share_lost": "Share of acknowledged writes that are lost",
}


@dataclass(frozen=True)
class OpRow:
    """One op as a row; `gap` counts the ops that are left out before it.

    `mark` is `cited` where this page names the op, `cited wrong` where it is the wrong one.
    """

    index: int
    time: str
    worker: str
    type: str
    glyph: str
    f: str
    key: str
    value: str
    token: str
    error: str
    partner: int | None
    mark: str
    gap: int


@dataclass(frozen=True)
class FaultRow:
    """One fault as executed."""

    kind: str
    nodes: str
    who: str
    at: str
    requested: str
    on: str
    off: str
    length: str
    grade: str
    glyph: str
    proof: str


def select_ops(reading: Reading, cited: Sequence[int], around: tuple[int, int] | None) -> list[int]:
    """The indexes of the ops to show: the cited ones, then those near the last cited one.

    `around` is the time span (nanoseconds) of the main picture, None where there is none.
    """
    ops = reading.evidence.history.ops
    chosen = dict.fromkeys([i for i in cited if 0 <= i < len(ops)][:MAX_ROWS])
    if reading.malformed is not None:
        line = reading.malformed.line - 1
        near = range(max(0, line - _AROUND_MISTAKE), min(len(ops), line + _AROUND_MISTAKE + 1))
        chosen |= dict.fromkeys(near)
    elif around is not None and cited:
        span = reading.ops_between(*around)
        centre = min(cited[0], len(ops) - 1)
        keys = {ops[i].key for i in chosen}
        near_first = sorted(
            (i for i in span if ops[i].key in keys), key=lambda i: (abs(i - centre), i)
        )
        for i in near_first:
            if len(chosen) >= MAX_ROWS:
                break
            chosen.setdefault(i)
    return sorted(chosen)[:MAX_ROWS]


def op_rows(
    reading: Reading, chosen: Sequence[int], cited: Iterable[int], wrong: Iterable[int]
) -> list[OpRow]:
    """The rows of the ops table; `wrong` are the ops of the decisive line of the story."""
    ops = reading.evidence.history.ops
    marks = dict.fromkeys(cited, "cited") | dict.fromkeys(wrong, "cited wrong")
    rows, before = [], chosen[0] - 1 if chosen else 0
    for i in chosen:
        op, call = ops[i], reading.call(i)
        partner = None
        if call is not None:
            partner = call.ret_index if op.type == "invoke" else call.index
        rows.append(
            OpRow(
                index=i,
                time=at(op.time_ns),
                worker=clean(op.worker or str(op.process), 40),
                type=op.type,
                glyph=GLYPHS[op.type],
                f=clean(op.f, 40),
                key="" if op.key is None else show(op.key, 40),
                value="" if op.value is None else show(op.value),
                token="" if op.token is None else str(op.token),
                error="" if op.error is None else clean(op.error, 160),
                partner=partner,
                mark=marks.get(i, ""),
                gap=i - before - 1,
            )
        )
        before = i
    return rows


def fault_rows(windows: Sequence[Window]) -> list[FaultRow]:
    """The rows of the faults table, as executed: the first `MAX_FAULTS`."""
    return [
        FaultRow(
            kind=clean(w.kind, 40),
            nodes=clean(", ".join(w.nodes), 80),
            who=clean(w.who, 40),
            at=clean(w.at, 60),
            requested=at(w.requested_ns),
            on="not seen" if w.on_ns is None else at(w.on_ns),
            off="not seen" if w.off_ns is None else at(w.off_ns),
            length="" if w.on_ns is None or w.off_ns is None else lasting(w.off_ns - w.on_ns),
            grade=w.grade.replace("-", " "),
            glyph={"installed": "✓", "not-effective": "✕", "indeterminate": "?"}[w.grade],
            proof="; ".join(
                part
                for part in (
                    f"on: {clean(w.on.text, 200)}" if w.on else "",
                    f"off: {clean(w.off.text, 200)}" if w.off else "",
                    clean(w.text, 200),
                )
                if part
            ),
        )
        for w in windows[:MAX_FAULTS]
    ]


def margin_rows(margins: dict[str, Any]) -> list[tuple[str, str]]:
    """The margins with their names in words; a name's unit is its last part (`_s`, `_share`)."""
    order = {name: i for i, name in enumerate(_MARGINS)}
    known_first = sorted(margins.items(), key=lambda item: order.get(item[0], len(order)))
    return [(_margin_name(name), _measure(name, value)) for name, value in known_first]


def _margin_name(name: str) -> str:
    if name in _MARGINS:
        return _MARGINS[name]
    words = name.removesuffix("_s").removesuffix("_ns").replace("_", " ").replace("-", " ")
    return clean(words[:1].upper() + words[1:], 120)


def _measure(name: str, value: Any) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, dict):
        unit = name[name.rfind("_") :] if "_" in name else ""
        parts = [
            f"{clean(str(k), 40)} {_measure(f'{k}{unit}', v)}" for k, v in list(value.items())[:12]
        ]
        return ", ".join(parts)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return show(value)
    if name.endswith("_s"):
        return lasting(value * 1e9) if abs(value) >= 1e-9 else "0 s"
    if name.endswith("_ns"):
        return lasting(value)
    if "share" in name.split("_"):
        return f"{value * 100:.3g} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def fact_rows(reading: Reading, results: Results) -> list[tuple[str, str]]:
    """What ran, in which versions, and how much of it."""
    spec = reading.evidence.spec
    rows = [("Run folder", results.run), ("Began", results.began)]
    if spec is not None:
        rows += [
            ("Lock service", str(spec.lock)),
            ("Resource", str(spec.store)),
            ("Workload", spec.workload),
            ("Backend", spec.backend),
            ("Workers", f"{count(spec.workers, 'contender')}, {count(spec.readers, 'reader')}"),
            ("Lease", f"{spec.ttl_s:g} s"),
            ("Planned length", f"{spec.time_s:g} s"),
            ("Seed", str(spec.seed)),
        ]
        rows += [("Fault", str(fault)) for fault in spec.faults]
    rows.append(("What the resource does with tokens", _fence(reading.evidence.fence)))
    rows.append(("Length", lasting(results.duration_s * 1e9)))
    if reading.malformed is None:
        counts = Counter(call.outcome for call in reading.calls)
        words: dict[Outcome, str] = {
            "ok": "ok",
            "fail": "failed",
            "info": "unknown",
            "open": "never answered",
        }
        told = ", ".join(f"{counts[o]:,} {word}" for o, word in words.items() if counts[o])
        rows.append(("Calls", f"{len(reading.calls):,}" + (f" ({told})" if told else "")))
    rows += sorted({**reading.evidence.facts, **results.facts}.items())
    rows += _counts(results.verdict.stats)
    return [(clean(name, 80), clean(value, 300)) for name, value in rows]


def _counts(stats: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """The counts of a verdict; counts of counts (operations by outcome) a row each."""
    for name, value in stats.items():
        if isinstance(value, dict) and all(isinstance(part, dict) for part in value.values()):
            for part, counts in list(value.items())[:40]:
                told = [f"{n:,} {word}" for word, n in counts.items() if isinstance(n, int) and n]
                yield f"{_margin_name(name)}: {part}", ", ".join(told) or "none"
        else:
            yield _margin_name(name), _measure("", value)


def _fence(fence: str | None) -> str:
    known = {
        "none": "none: it takes every write",
        "checked": "checked: it refuses a token lower than the highest it has seen",
        "guarded": "guarded: it accepts only while the lock service calls the token current",
    }
    return "not recorded" if fence is None else known.get(fence, fence)
