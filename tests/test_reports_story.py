"""The story names who did what when, and every line has the ops that prove it."""

from typing import Any

import msgspec
import pytest

from harness.evidence import Evidence
from harness.results import Results
from harness.window import Window
from reports.reading import Reading
from reports.story import Story, generic_story
from reports.takeover import Takeover, refused_takeover, takeover_of
from reports.takeover_story import takeover_story
from tests.test_reports_samples import failing, ns, passing, undecided


def told(evidence: Evidence, judged: Results, **details: Any) -> tuple[Takeover, Story]:
    reading = Reading(evidence)
    anomaly = judged.verdict.anomalies[0]
    anomaly = msgspec.structs.replace(anomaly, details={**anomaly.details, **details})
    scene = takeover_of(anomaly, reading)
    assert scene is not None
    return scene, takeover_story(scene, reading, anomaly)


def altered(evidence: Evidence, **changes: Any) -> Evidence:
    return Evidence(**{**evidence.__dict__, **changes})


def test_the_story_of_a_sleeping_owner() -> None:
    _, story = told(*failing(1))
    lines = [line.text for line in story.lines]
    decisive = (
        "w1 writes “w1-4” with token 33, and the resource accepts it, 3.35 s after it first "
        "accepted the higher token 34. By its own answer it overwrote “w2-49”, written with token "
        "34."
    )
    learnt = "w1 learns that it is no longer the owner (its lease ended by the worker's own clock)"
    end = "At the end of the run “k0” was written again by later owners; it holds “w3-104”"
    since = "Since then w2 wrote 25 more times, always accepted"
    expected = [
        "w1 gets the lock “k0” with token 33. The lease lasts 2 s unless it is renewed.",
        "w1 is the owner and has written 3 times; that was accepted.",
        "w1 asks whether it still holds the lock: yes. Its next step is to write.",
        "Fault: w1 is frozen. It runs no code and notices nothing until it wakes.",
        "The lease of w1 ends. w1 is frozen and cannot notice.",
        "w2 gets the lock with token 34. Now w2 is the owner.",
        "w2 writes “w2-24” with token 34; the resource accepts it.",
        f"{since}; the last one is “w2-49” with token 34.",
        "w1 wakes up after 5 s. It still takes itself for the owner.",
        decisive,
        f"{learnt}, 17 ms after the write.",
        f"{end} (with token 35).",
    ]
    assert lines == expected
    assert [line.number for line in story.lines] == list(range(1, 13))
    assert [line.number for line in story.lines if line.decisive] == [10]
    times = [line.time_ns for line in story.moments if line.time_ns is not None]
    assert times == sorted(times)
    assert "Here token 33 was accepted after token 34" in story.why
    assert "keeps no highest token and takes every write" in story.why
    assert "keep the highest token that it has seen" in story.prevention


def test_the_ops_of_a_line_are_those_of_its_call() -> None:
    evidence, judged = failing(1)
    scene, story = told(evidence, judged)
    decisive = next(line for line in story.lines if line.decisive)
    assert decisive.ops == (scene.late.index, scene.late.ret_index)
    ops = evidence.history.ops
    assert [(ops[i].f, ops[i].type, ops[i].worker) for i in decisive.ops] == [
        ("write", "invoke", "w1"),
        ("write", "ok", "w1"),
    ]


@pytest.mark.parametrize("missing", ["stale_grant", "newer_grant", "newer_write", "lease_end_ns"])
def test_what_the_checker_leaves_out_is_looked_up(missing: str) -> None:
    evidence, judged = failing(1)
    assert told(evidence, judged, **{missing: None}) == told(evidence, judged)


def test_without_any_details_the_last_op_is_the_late_write() -> None:
    evidence, judged = failing(1)
    bare = msgspec.structs.replace(judged.verdict.anomalies[0], details={})
    scene = takeover_of(bare, Reading(evidence))
    assert scene is not None
    assert scene.late == told(evidence, judged)[0].late
    assert scene.newer == told(evidence, judged)[0].newer


def test_the_stale_window_goes_from_the_end_of_the_lease_to_the_late_write() -> None:
    evidence, judged = failing(1)
    assert told(evidence, judged)[0].stale_ns == (ns(3.02), ns(6.511))
    # A lease that was not over: the lock was granted again too early, and stale begins there.
    early, _ = told(evidence, judged, lease_end_ns=ns(60))
    assert early.stale_ns == (ns(3.112), ns(6.511))


def test_what_befell_others_is_not_told() -> None:
    evidence, judged = failing(1)
    other = msgspec.structs.replace(evidence.windows[0], nodes=("w3",), op=None)
    server = msgspec.structs.replace(other, kind="partition", nodes=("etcd1",))
    _, story = told(altered(evidence, windows=[other, server, *evidence.windows]), judged)
    texts = [line.text for line in story.lines]
    assert not any("w3 is frozen" in text for text in texts)
    assert "Fault: partition on etcd1 begins." in texts


@pytest.mark.parametrize(
    ("fence", "words"),
    [
        ("none", "takes every write"),
        ("checked", "is said to refuse a token lower than the highest"),
        ("guarded", "only while the lock service calls its token current"),
        (None, "was not recorded"),
    ],
)
def test_why_the_resource_let_it_happen(fence: str | None, words: str) -> None:
    evidence, judged = failing(1)
    _, story = told(altered(evidence, fence=fence), judged)
    assert words in story.why
    assert story.prevention


def test_lost_writes_are_named() -> None:
    evidence, judged = failing(1)
    lost = [judged.verdict.anomalies[0].details["newer_write"]]
    _, story = told(evidence, judged, lost=lost)
    assert "Lost: 1 acknowledged write of newer owners, “w2-24”." in [x.text for x in story.lines]


def test_a_loss_learnt_before_the_write_came_too_late_for_it() -> None:
    evidence, judged = failing(1)
    notes = [
        msgspec.structs.replace(n, time_ns=ns(6.508))
        if n.worker == "w1" and n.holds is False
        else n
        for n in evidence.notes
    ]
    _, story = told(altered(evidence, notes=notes), judged)
    line = next(
        line for line in story.lines if "learns that it is no longer the owner" in line.text
    )
    assert line.text.endswith("but its write is already on its way.")
    assert line.number < next(x.number for x in story.lines if x.decisive)


def test_an_older_fault_does_not_pull_the_story_back() -> None:
    evidence, judged = failing(2)
    cut = Window(
        spec=1,
        kind="partition",
        who="minority",
        nodes=("etcd3",),
        at="0s",
        requested_ns=0,
        on_ns=ns(0.01),
        heal_ns=ns(30),
        grade="indeterminate",
    )
    reading = Reading(altered(evidence, windows=[cut, *evidence.windows]))
    anomaly = judged.verdict.anomalies[1]
    scene = takeover_of(anomaly, reading)
    assert scene is not None
    story = takeover_story(scene, reading, anomaly)
    texts = [line.text for line in story.lines]
    assert "Fault: partition on etcd3 begins (indeterminate)." in texts
    assert min(line.time_ns or 0 for line in story.moments) == scene.stale.start_ns


def test_a_refused_late_write_is_the_same_scene() -> None:
    evidence, _ = passing()
    reading = Reading(evidence)
    scene = refused_takeover(reading)
    assert scene is not None
    assert scene.refused
    assert (scene.stale.worker, scene.newer and scene.newer.worker) == ("w1", "w2")
    story = takeover_story(scene, reading, None)
    decisive = next(line.text for line in story.lines if line.decisive)
    assert decisive == (
        "w1 writes “w1-4” with token 33. The resource refuses it: it has seen a higher token "
        "(fenced: the highest token is 34)."
    )
    assert story.why.startswith("w1 was no longer the owner, and the resource did not take")


def test_without_a_refusal_there_is_no_such_scene() -> None:
    assert refused_takeover(Reading(undecided()[0])) is None
    assert refused_takeover(Reading(failing(1)[0])) is None


def test_any_finding_is_told_by_its_calls_and_ends_with_the_wrong_one() -> None:
    evidence, judged = failing(1)
    anomaly = msgspec.structs.replace(judged.verdict.anomalies[0], name="lost-ack", details={})
    story = generic_story(anomaly, Reading(evidence))
    texts = [line.text for line in story.lines]
    assert "w1 asks for the lock “k0” and gets it with token 33." in texts
    assert "Fault: w1 is frozen. It runs no code and notices nothing until it wakes." in texts
    assert story.lines[-1].decisive
    assert story.lines[-1].text == "w1 writes “w1-4” to “k0” with token 33: accepted."
    assert story.why.startswith("An effect that was acknowledged must stay.")


def test_a_finding_with_many_ops_is_told_in_part_and_says_so() -> None:
    evidence, judged = failing(2)
    anomaly = msgspec.structs.replace(
        judged.verdict.anomalies[0], name="read-reversal", ops=tuple(range(300)), details={}
    )
    story = generic_story(anomaly, Reading(evidence))
    assert len(story.lines) <= 24
    assert any(line.decisive for line in story.lines)
    assert "more calls of this finding are not told" in story.lines[-1].text
