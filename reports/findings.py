"""Findings as the page shows them: one picture and one story for all that one late write broke.

A stale write usually breaks several properties at once (the order of tokens, and an update is
lost).  They are one event, so they are told once; the others stand beside it by name and sentence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.verdict import Anomaly
from reports import picture, rules
from reports.phrase import owner_words, refusal_words
from reports.reading import Reading, member
from reports.scene import Scene
from reports.stage import generic_scene, takeover_scene
from reports.story import Story, generic_story
from reports.takeover import Takeover, current_owner, refused_takeover, takeover_of
from reports.takeover_story import takeover_story
from reports.text import clean, lasting, quoted, who

MAX_PICTURES = 6
MAX_LISTED = 20
_MAX_CITED = 12


@dataclass
class Finding:
    """One event of a page.  `also` are further anomalies that the same write caused."""

    ident: str
    anomaly: Anomaly | None
    takeover: Takeover | None
    story: Story
    scene: Scene | None
    also: list[Anomaly] = field(default_factory=list)
    svg: str = ""

    @property
    def title(self) -> str:
        """What happened, in one sentence."""
        if self.anomaly is not None:
            return clean(self.anomaly.sentence)
        assert self.takeover is not None
        late = self.takeover.late
        return f"{who(late.worker)} wrote too late, and the resource refused it."

    @property
    def must(self) -> str:
        """The property that was broken, empty for a name outside the catalogue."""
        return rules.must(self.anomaly.name) if self.anomaly else ""

    @property
    def cited(self) -> list[int]:
        """The ops that the page must be able to show for this finding, the wrong one first."""
        wrong = [self.takeover.late.index] if self.takeover else []
        told = [i for line in self.story.lines for i in line.ops]
        proof = [i for a in (self.anomaly, *self.also) if a for i in cited_ops(a)]
        return list(dict.fromkeys([*wrong, *proof, *told]))

    def draw(self, linked: Callable[[int], bool]) -> None:
        """Make the pictures for wide and for narrow screens; `linked`: has an op a row here."""
        if self.scene is not None:
            self.svg = "".join(
                picture.render(self.scene, self.story, self.ident, self.title, linked, form=form)
                for form in (picture.WIDE, picture.NARROW)
            )


def cited_ops(anomaly: Anomaly) -> tuple[int, ...]:
    """The ops of a finding that a page names: the first ones, and always the last, wrong one."""
    if len(anomaly.ops) <= _MAX_CITED:
        return anomaly.ops
    return (*anomaly.ops[: _MAX_CITED - 1], anomaly.ops[-1])


def findings(
    anomalies: Sequence[Anomaly], reading: Reading
) -> tuple[list[Finding], list[Anomaly], int]:
    """The events with pictures, further anomalies to list, and how many are not even listed."""
    shown: list[Finding] = []
    listed: list[Anomaly] = []
    by_write: dict[int, Finding] = {}
    hidden = 0
    for anomaly in anomalies:
        scene = takeover_of(anomaly, reading)
        same = by_write.get(scene.late.index) if scene is not None else None
        if same is not None and len(same.also) < MAX_LISTED:
            same.also.append(anomaly)
        elif len(shown) < MAX_PICTURES:
            found = _finding(f"f{len(shown)}", anomaly, scene, reading)
            shown.append(found)
            if scene is not None:
                by_write[scene.late.index] = found
        elif len(listed) < MAX_LISTED:
            listed.append(anomaly)
        else:
            hidden += 1
    return shown, listed, hidden


def _finding(ident: str, anomaly: Anomaly, scene: Takeover | None, reading: Reading) -> Finding:
    if scene is None:
        story = generic_story(anomaly, reading)
        return Finding(ident, anomaly, None, story, generic_scene(anomaly, story, reading))
    story = takeover_story(scene, reading, anomaly)
    return Finding(ident, anomaly, scene, story, takeover_scene(scene, story, reading))


def refused(reading: Reading) -> Finding | None:
    """The first late write that the resource refused, told like a finding."""
    scene = refused_takeover(reading)
    if scene is None:
        return None
    story = takeover_story(scene, reading, None)
    return Finding("f0", None, scene, story, takeover_scene(scene, story, reading))


def in_short(finding: Finding | None, reading: Reading) -> list[tuple[str, str]]:
    """Who wrote too late, what it did, why that could happen, and what would have prevented it."""
    if finding is None or finding.takeover is None:
        return []
    scene = finding.takeover
    late, stale, newer = scene.late, scene.stale, scene.newer
    told = f"{owner_words(late.worker, stale.token)}, the old owner."
    done_ns = reading.done_ns(late)
    if scene.lease_end_ns is not None and scene.lease_end_ns < late.call_ns:
        told += f" Its lease had been over for {lasting(late.call_ns - scene.lease_end_ns)}."
    if any(on <= done_ns and off >= stale.start_ns for on, off, _ in reading.frozen(late.worker)):
        told += " A fault had frozen it, so it did not notice."
    owner = "" if newer is None else owner_words(newer.worker, newer.token)
    key = quoted(late.key) if late.key is not None else "the resource"
    if scene.refused:
        current = current_owner(reading, scene)
        owner = "" if current is None else owner_words(current.worker, current.token)
        what = f"It tried to write {quoted(late.value)} to {key}" + (
            f", which by then belonged to {owner}." if owner else "."
        )
        why = f"It refused: {refusal_words(late)}. What the new owner had written stayed."
        return [
            ("Who woke up too late", told),
            ("What it tried", what),
            ("What the resource did", why),
        ]
    over = member(late.result, "over")
    what = f"It wrote {quoted(late.value)} to {key}"
    if over is not None:
        writer = reading.owner_of(late.key, member(over, "token"))
        whose = owner if writer is None else owner_words(writer.worker, writer.token)
        what += f" over {quoted(member(over, 'value'))}, the value of the newer owner {whose}."
    else:
        what += f" after the new owner {owner} had written to it." if owner else "."
    name = finding.anomaly.name if finding.anomaly else ""
    why = rules.why_accepted(name, reading.evidence.fence)
    return [
        ("Who wrote too late", told),
        ("What it did", what),
        ("Why the resource let it happen", why),
        ("What would have prevented it", rules.remedy(name, reading.evidence.fence)),
    ]
