"""The fenced register: a write is accepted unless a higher token was accepted before.

Exact in O(n log n) when each value is written once on a key; unknown outcomes, refusals, refusals
that name the winning token, and reads of the token alone are covered.  Accepted tokens never go
down, so the clusters of a key fall into classes by token, in a forced order; inside a class they
are a plain register.  The rules, the theorem and its proof are in docs/explanation/fenced-check.md.
"""

import numpy as np

from harness.checking.classes import Classes, classify
from harness.checking.clusters import (
    conflict,
    gather,
    reads_of,
    told_wrong,
    two_cycle,
    writes_of,
)
from harness.checking.finding import Finding, Named
from harness.checking.refusals import judge_refusals, judge_sights
from harness.checking.steps import REFUSED, UNTOLD, WRITE, Steps


def judge_fenced(steps: Steps) -> Named | None:
    """Return what is wrong, None when some order explains everything.

    Raises RepeatedValuesError.
    """
    if not len(steps.call):
        return None
    writes = writes_of(steps)
    clusters = gather(steps, writes, steps.value[writes], reads_of(steps))
    if isinstance(clusters, Finding):
        return clusters
    wrong = told_wrong(clusters) or refused_by_a_low_token(steps)
    if wrong:
        return wrong
    classes = classify(clusters)
    if isinstance(classes, Finding):
        return classes
    return _across(classes) or _inside(classes) or judge_sights(classes) or judge_refusals(classes)


def refused_by_a_low_token(steps: Steps) -> Finding | None:
    """Find a refusal that names a token which is no reason to refuse."""
    told = (steps.outcome == REFUSED) & (steps.told > UNTOLD)
    wrong = (told & (steps.told <= steps.token)).nonzero()[0]
    if not len(wrong):
        return None
    text = "a write was refused although the token it was told of is not higher: {0}"
    return Finding("refused-newest", (int(wrong[0]),), text)


def _across(classes: Classes) -> Named | None:
    """Find an operation on a token that began after one on a higher token had ended."""
    base = classes.key * classes.span
    higher = np.minimum.accumulate((base + classes.first)[::-1])[::-1]
    follows = classes.key[1:] == classes.key[:-1]
    wrong = (follows & ((base + classes.last)[:-1] > higher[1:])).nonzero()[0]
    if not len(wrong):
        return None
    return lambda: _token_went_back(classes, int(wrong[0]))


def _inside(classes: Classes) -> Named | None:
    """Find two writes of one class that must each come before the other."""
    clusters, members = classes.clusters, classes.members
    base = classes.group * classes.span
    pair = conflict(base + clusters.first[members], base + clusters.last[members])
    if pair is None:
        return None
    return lambda: two_cycle(clusters, *(int(members[at]) for at in pair))


def _token_went_back(classes: Classes, group: int) -> Finding:
    clusters, steps = classes.clusters, classes.clusters.steps
    sure = np.flatnonzero(~classes.optional & (clusters.row >= 0))
    rows = np.concatenate([clusters.row[sure], clusters.reads, classes.sights])
    codes = np.concatenate(
        [classes.code_of[sure], classes.code_of[clusters.source], classes.sight_code]
    )
    same = rows[codes == classes.code[group]]
    late = int(same[np.argmax(steps.call[same])])
    above = rows[(codes > classes.code[group]) & (steps.key[rows] == classes.key[group])]
    early = int(above[np.argmin(steps.ret[above])])
    found = [row for row in clusters.witness(late, early) if row != late]
    rows_read = (*found, late)
    where, last = found.index(early), len(found)
    if steps.kind[late] == WRITE and steps.outcome[late] != REFUSED:
        text = f"{{{last}}} was accepted after a higher token had been in effect: {{{where}}}"
        return Finding("stale-owner-write", rows_read, text)
    wrote = [row for row in found if steps.kind[row] == WRITE and row != early]
    answered = any(steps.ret[row] < steps.call[early] for row in wrote) or not wrote
    text = f"{{{last}}} saw a lower token after a higher one had been in effect: {{{where}}}"
    if not answered:
        text += "; either a stale owner's write took effect late, or the read was stale"
    name = "stale-read" if answered else "stale-owner-write"
    return Finding(name, rows_read, text, certain=answered)
