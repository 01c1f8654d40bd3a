"""Fills the lanes of a scene from the evidence.

Top to bottom: the faults; the lock service (who holds which token, as the service says); each
worker involved (what it believes, and when it was frozen); the resource (what it accepted and
refused).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from harness.history import Call
from harness.verdict import Anomaly
from harness.window import Window
from reports.phrase import with_token
from reports.reading import NOT_MINE, Belief, Grant, Reading, refusal
from reports.scene import Bracket, Lane, Mark, Row, Scene, Span
from reports.story import Story, calls_of, ops_of
from reports.takeover import Takeover
from reports.text import brief, clean, count, lasting, show, who

_MAX_WORKERS = 5
_MAX_FAULT_ROWS = 4


def takeover_scene(scene: Takeover, story: Story, reading: Reading) -> Scene | None:
    """The picture of a stale write, accepted or refused."""
    last = reading.final_read(scene.key)
    done_ns = reading.done_ns(scene.late)
    times = [line.time_ns for line in story.moments if line.time_ns is not None]
    near = [t for t in times if last is None or t < last.call_ns or t <= done_ns]
    known = [scene.stale.worker] + ([scene.newer.worker] if scene.newer else [])
    stage = Stage(reading, scene.key, near, known, wrong=scene.late, proof=(scene.late.index,))
    lost = not scene.refused
    bracket = None
    if scene.stale_ns is not None:
        start_ns, end_ns = scene.stale_ns
        bracket = Bracket(start_ns, end_ns, f"stale window: {lasting(end_ns - start_ns)}")
    tail_ns = reading.done_ns(last) if last is not None and lost else None
    if tail_ns is not None and tail_ns <= stage.end_ns:
        tail_ns = None
    return stage.scene(bracket, tail_ns, last)


def generic_scene(anomaly: Anomaly, story: Story, reading: Reading) -> Scene | None:
    """The picture of a finding of any name: the calls that prove it, with all around them."""
    calls = calls_of(anomaly, reading)
    if not calls:
        return None
    times = [line.time_ns for line in story.moments if line.time_ns is not None]
    times += [t for c in calls for t in (c.call_ns, reading.done_ns(c))]
    key = anomaly.key if anomaly.key is not None else calls[-1].key
    workers = list(dict.fromkeys(c.worker for c in calls))
    bracket = _overlap(calls, reading, anomaly.size_s)
    if bracket is not None:
        times += [bracket.start_ns, bracket.end_ns]
    proof = tuple(c.index for c in calls)
    stage = Stage(reading, key, times, workers, wrong=calls[-1], proof=proof)
    return stage.scene(bracket, None, None)


def _overlap(calls: Sequence[Call], reading: Reading, size_s: float | None) -> Bracket | None:
    """Where two grants of one finding overlap, the stretch in which both certainly held.

    The checker's length is taken where it gave one: two numbers for one thing would be a riddle.
    """
    indexes = {c.index for c in calls}
    grants = [g for c in calls[:1] for g in reading.grants(c.key) if g.call.index in indexes]
    for first, second in pairwise(grants):
        if first.end_ns is not None and second.start_ns < first.end_ns:
            both_ns = first.end_ns - second.start_ns if size_s is None else round(size_s * 1e9)
            end_ns = second.start_ns + both_ns
            return Bracket(second.start_ns, end_ns, f"two owners for {lasting(both_ns)}")
    return None


class Stage:
    """Fills the lanes for one key, one stretch of time and the workers involved."""

    def __init__(
        self,
        reading: Reading,
        key: str | None,
        times: Sequence[int],
        workers: Sequence[str],
        *,
        wrong: Call,
        proof: tuple[int, ...],
    ) -> None:
        self.reading, self.key, self.wrong, self.proof = reading, key, wrong, proof
        self.times = sorted(times)
        span_ns = max(self.times[-1] - self.times[0], 1_000_000)
        self.start_ns = self.times[0] - min(span_ns // 30, 300_000_000)
        self.end_ns = self.times[-1] + min(span_ns // 25, 400_000_000)
        others = [g.worker for g in reading.grants(key) if self._matters(g)]
        self.workers = list(dict.fromkeys([*workers, *others]))[:_MAX_WORKERS]

    def _visible(self, start_ns: int, end_ns: int | None) -> bool:
        """Whether something lies in the scene; what ended before its first moment does not."""
        return start_ns <= self.end_ns and (end_ns is None or end_ns >= self.times[0])

    def _matters(self, grant: Grant) -> bool:
        """Whether a grant was in force during the scene proper, not only on its rim."""
        return grant.start_ns <= self.times[-1] and self._visible(grant.start_ns, grant.end_ns)

    def _owner(self, worker: str) -> str:
        return f"owner{self.workers.index(worker)}" if worker in self.workers else "other"

    def scene(self, bracket: Bracket | None, tail_ns: int | None, last: Call | None) -> Scene:
        """All lanes that have something to show."""
        lanes = [self._faults(), self._lock(), *map(self._worker, self.workers)]
        lanes.append(self._resource(last if tail_ns is not None else None))
        spec = self.reading.evidence.spec
        return Scene(
            start_ns=self.start_ns,
            end_ns=self.end_ns,
            moments=self.times,
            lanes=[lane for lane in lanes if lane.rows],
            bracket=bracket,
            tail_ns=tail_ns,
            long_ns=round((spec.ttl_s if spec else 2.0) * 2e9),
        )

    def _faults(self) -> Lane:
        shown: list[tuple[Span, Window]] = []
        for window in self.reading.evidence.windows:
            start_ns = window.on_ns if window.on_ns is not None else window.requested_ns
            end_ns = window.heal_ns if window.heal_ns is not None else window.off_ns
            if window.nodes and self._visible(start_ns, end_ns):
                span = _fault(window, start_ns, self.end_ns if end_ns is None else end_ns)
                must = self.wrong.worker in window.nodes
                shown.append((replace(span, must=must), window))
        # Faults on the workers of this scene explain it, so they are kept when there are too many.
        shown.sort(key=lambda pair: not set(pair[1].nodes) & set(self.workers))
        rows = _packed([span for span, _ in shown])
        hidden = sum(len(row.spans) for row in rows[_MAX_FAULT_ROWS:])
        sub = f"{hidden} more not drawn" if hidden else "as a probe saw them"
        return Lane("Faults", sub, rows[:_MAX_FAULT_ROWS])

    def _lock(self) -> Lane:
        grants = [g for g in self.reading.grants(self.key) if self._matters(g)]
        spans = [self._grant(g) for g in grants]
        ends = [
            Mark(g.lease_end_ns, "end", f"the lease of {who(g.worker)} ends", words="lease ends")
            for g in grants
            if g.lease_end_ns is not None and g.lease_end_ns == g.end_ns
        ]
        rows = [
            replace(row, marks=[m for m in ends if any(s.end_ns == m.time_ns for s in row.spans)])
            for row in _packed(spans)
        ]
        return Lane("Lock service", "who holds it", rows)

    def _grant(self, grant: Grant) -> Span:
        token = "" if grant.token is None else f"token {grant.token}"
        holder = who(grant.worker)
        long = f"{holder} holds it, {token}" if token else f"{holder} holds it"
        short = (f"{holder} · {grant.token}", str(grant.token)) if token else (holder,)
        end_ns = self.end_ns if grant.end_ns is None else grant.end_ns
        title = f"the lock service gave the lock to {holder} {with_token(grant.token)}"
        style, op = self._owner(grant.worker), grant.call.index
        return Span(grant.start_ns, end_ns, style, (long, *short), title, op, must=True)

    def _worker(self, worker: str) -> Lane:
        beliefs = self.reading.beliefs(worker, self.key)
        spans = [span for b in beliefs for span in self._belief(worker, b)]
        spans = [s for s in spans if self._visible(s.start_ns, s.end_ns)]
        # Words below a bar are for the one who wrote wrongly; for all others they are clutter.
        must = worker == self.wrong.worker
        frozen = [
            Span(on, off, "frozen", (f"frozen for {lasting(off - on)}", "frozen"), must=must)
            for on, off, _ in self.reading.frozen(worker)
            if self._visible(on, off)
        ]
        marks = [
            m for m in map(self._act, self._acts(worker)) if self._visible(m.time_ns, m.time_ns)
        ]
        told = all(belief.told for belief in beliefs)
        sub = "believes" if told else "must believe"
        return Lane(who(worker), sub, [Row(spans), Row(frozen, marks, thin=True)], "does")

    def _belief(self, worker: str, belief: Belief) -> Iterable[Span]:
        until_ns = self.end_ns if belief.end_ns is None else belief.end_ns
        grant = self.reading.grant_of(worker, self.key, belief.start_ns + 50_000_000)
        alive_ns = until_ns
        if grant is not None and grant.lease_end_ns is not None:
            alive_ns = min(until_ns, max(belief.start_ns, grant.lease_end_ns))
        owner = self._owner(worker)
        token = "" if belief.token is None else f", token {belief.token}"
        if alive_ns > belief.start_ns:
            labels = (f"“I am the owner”{token}", "“I am the owner”", "owner")
            yield Span(belief.start_ns, alive_ns, owner, labels, "its lease is certainly alive")
        if alive_ns < until_ns:
            untrue = ("still “I am the owner”: no longer true", "no longer true")
            title = "its lease is over and it does not know"
            must = worker == self.wrong.worker
            yield Span(alive_ns, until_ns, f"{owner} hatched", untrue, title, must=must)

    def _acts(self, worker: str) -> Iterable[Call]:
        for f in ("acquire", "renew", "check", "write", "release"):
            for call in self.reading.of(f, self.key):
                if call.worker == worker and not (f == "acquire" and call.outcome == "fail"):
                    yield call
        if self.wrong.f not in ("acquire", "renew", "check", "write", "release"):
            yield from (c for i in self.proof if (c := self.reading.call(i)) and c.worker == worker)

    def _act(self, call: Call) -> Mark:
        wrong = call.index == self.wrong.index and call.outcome != "fail"
        style = "act wrong" if wrong else "act write" if call.f == "write" else "act"
        title = f"#{call.index} {call.f} {with_token(call.token)}: {call.outcome}"
        return Mark(call.call_ns, style, title, call.index)

    def _resource(self, last: Call | None) -> Lane:
        writes = [
            c
            for c in self.reading.of("write", self.key)
            if self._visible(c.call_ns, self.reading.done_ns(c))
        ]
        writes.sort(key=self.reading.done_ns)
        spans = self._accepted(writes)
        marks = [m for c in writes if (m := self._special(c)) is not None]
        marks += [
            Mark(self.reading.done_ns(c), "read", f"#{c.index} read {show(c.result)}", c.index)
            for i in self.proof
            if (c := self.reading.call(i)) is not None and c.f == "read" and c.key == self.key
        ]
        if last is not None:
            words = f"at the end: {brief(last.result)}"
            marks.append(Mark(self.reading.done_ns(last), "read", words, last.index, words))
        if not spans and not marks:
            return Lane("Resource", "", [])
        return Lane("Resource", "what it accepted", [Row(spans, marks)])

    def _accepted(self, writes: Sequence[Call]) -> list[Span]:
        """One bar for each unbroken series of accepted writes of one worker with one token."""
        runs: list[list[Call]] = []
        for call in writes:
            wrong = call.index == self.wrong.index and call.outcome != "fail"
            if call.outcome != "ok" and not wrong:
                continue
            last = runs[-1][-1] if runs else None
            same = last is not None and (last.worker, last.token) == (call.worker, call.token)
            if same and last is not None and self.wrong.index not in (call.index, last.index):
                runs[-1].append(call)
            else:
                runs.append([call])
        return [self._series(run) for run in runs if run[0].index != self.wrong.index]

    def _series(self, run: Sequence[Call]) -> Span:
        first, last = run[0], run[-1]
        token = who(first.worker) if first.token is None else f"token {first.token}"
        number = who(first.worker) if first.token is None else str(first.token)
        several = f" · {count(len(run), 'write')}" if len(run) > 1 else ""
        title = (
            f"{count(len(run), 'write')} of {who(first.worker)} {with_token(first.token)}, accepted"
        )
        start_ns, end_ns = first.call_ns, self.reading.done_ns(last)
        labels = (token + several, token, number)
        told = first.call_ns <= self.reading.done_ns(self.wrong)
        return Span(start_ns, end_ns, self._owner(first.worker), labels, title, first.index, told)

    def _special(self, call: Call) -> Mark | None:
        """The writes that get a mark of their own: wrong, refused, unknown."""
        time_ns = self.reading.done_ns(call)
        token = who(call.worker) if call.token is None else f"token {call.token}"
        writes = f"{who(call.worker)} writes" + ("" if call.token is None else f" with {token}")
        if call.index == self.wrong.index and call.outcome != "fail":
            words = f"{writes}: {'accepted' if call.outcome == 'ok' else 'took effect'}"
            return Mark(time_ns, "cross", words, call.index, words)
        if call.outcome == "fail":
            code = refusal(call)
            words = f"{writes}: refused" if code in NOT_MINE else ""
            title = f"#{call.index} {token}: refused, {clean(call.error or '', 80)}"
            style = "refused here" if call.index == self.wrong.index else "refused"
            return Mark(time_ns, style, title, call.index, words if "here" in style else "")
        if call.outcome in ("info", "open"):
            return Mark(
                time_ns, "unknown", f"#{ops_of(call)[0]} {token}: outcome unknown", call.index
            )
        return None


def _fault(window: Window, start_ns: int, end_ns: int) -> Span:
    nodes = clean(", ".join(window.nodes), 40)
    kind = clean(window.kind, 30)
    proven = window.grade == "installed"
    grade = "" if proven else f" ({window.grade.replace('-', ' ')})"
    style = "fault" if proven else "fault unproven"
    title = f"{kind} on {nodes}, {lasting(end_ns - start_ns)}{grade}"
    return Span(start_ns, end_ns, style, (f"{kind} {nodes}{grade}", kind), title, window.op)


def _packed(spans: Sequence[Span]) -> list[Row]:
    """As few rows as overlaps allow, earlier bars first."""
    rows: list[list[Span]] = []
    for span in spans:
        for row in rows:
            if all(s.end_ns <= span.start_ns or span.end_ns <= s.start_ns for s in row):
                row.append(span)
                break
        else:
            rows.append([span])
    return [Row(row) for row in rows]
