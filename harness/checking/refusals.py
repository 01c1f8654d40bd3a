"""The refusals of a fenced register, and the sights of its token, each in its time.

A refused write must come after some accepted write with a higher token.  Two things can make that
impossible: no such write can have taken effect by the time the refusal was answered, or something
on this token or a lower one was still to come.  A write of unknown outcome may explain a refusal.
"""

import numpy as np

from harness.checking.classes import Classes
from harness.checking.finding import Finding
from harness.checking.steps import REFUSED, UNTOLD
from harness.checking.values import Ints


def earliest_starts(classes: Classes) -> Ints:
    """Return for each class the earliest call of a member that can be the first of its class.

    A member can be first unless another one of its class must come before it.
    """
    clusters, span = classes.clusters, classes.span
    first, last = clusters.first[classes.members], clusters.last[classes.members]
    least = np.minimum.reduceat(first, classes.start)
    at_least = first == least[classes.group]
    how_many = np.add.reduceat(at_least.astype(np.int64), classes.start)
    rest = np.minimum.reduceat(np.where(at_least, span, first), classes.start)
    second = np.where(how_many > 1, least, rest)
    others = np.where(at_least, second[classes.group], least[classes.group])
    lead = np.where(last <= others, clusters.call[classes.members], span)
    return np.minimum.reduceat(lead, classes.start)


def judge_sights(classes: Classes) -> Finding | None:
    """Find a sight of a token that ended before any write with that token can have been first."""
    if not len(classes.sights):
        return None
    clusters = classes.clusters
    starts = earliest_starts(classes)
    unknown = classes.optional.nonzero()[0]
    at = np.searchsorted(classes.code, classes.code_of[unknown])
    mine = at < len(classes.code)
    mine[mine] = classes.code[at[mine]] == classes.code_of[unknown[mine]]
    np.minimum.at(starts, at[mine], clusters.call[unknown[mine]])
    seen = np.searchsorted(classes.code, classes.sight_code)
    wrong = np.flatnonzero(starts[seen] > clusters.steps.ret[classes.sights])
    if not len(wrong):
        return None
    text = "a token was seen before any write with it can have taken effect: {0}"
    return Finding("phantom-read", (int(classes.sights[wrong[0]]),), text)


def judge_refusals(classes: Classes) -> Finding | None:
    """Find a refusal that no higher token can explain."""
    steps = classes.clusters.steps
    refused = ((steps.outcome == REFUSED) & (steps.told == UNTOLD)).nonzero()[0]
    if not len(refused):
        return None
    key, ret = steps.key[refused], steps.ret[refused]
    code = key * classes.width + steps.token[refused]
    above = classes.code.searchsorted(code, side="right")
    starts = earliest_starts(classes)
    next_one = np.minimum(above, len(starts) - 1)
    mine = (above < len(starts)) & (classes.key[next_one] == key)
    early = np.where(mine, starts[next_one], classes.span)
    wrong = (early > ret).nonzero()[0]
    if len(wrong):  # unless an unknown write explains it
        early = _earliest_above(classes, starts, code[wrong], key[wrong], above[wrong])
        wrong = wrong[early > ret[wrong]]
    if len(wrong):
        text = "a write was refused although no higher token can have been in effect by then: {0}"
        return Finding("refused-newest", (int(refused[wrong[0]]),), text)
    base = classes.key * classes.span
    reach = np.maximum.accumulate(base + classes.last) - base
    below = np.maximum(above - 1, 0)
    mine = (above > 0) & (classes.key[below] == key)
    late = (mine & (reach[below] > ret)).nonzero()[0]
    if len(late):
        return _still_in_effect(classes, int(refused[late[0]]))
    return None


def _earliest_above(classes: Classes, starts: Ints, code: Ints, key: Ints, above: Ints) -> Ints:
    """Return the earliest call of a write that may be the first one above each refused token.

    Candidates: the unknown writes between the token and the next mandatory class, that class
    included, and the writes that can be first in it.
    """
    clusters, span = classes.clusters, classes.span
    unknown = classes.optional.nonzero()[0]
    codes = np.concatenate([classes.code, classes.code_of[unknown]])
    calls = np.concatenate([starts, clusters.call[unknown]])
    keys = np.concatenate([classes.key, clusters.key[unknown]])
    order = codes.argsort(kind="stable")
    codes, calls, keys = codes[order], calls[order], keys[order]
    gap = np.searchsorted(classes.code, codes, side="left") + keys
    best = np.minimum.accumulate((gap * span + calls)[::-1])[::-1] - gap * span
    place = np.searchsorted(codes, code, side="right")
    inside = np.minimum(place, len(codes) - 1)
    usable = (place < len(codes)) & (gap[inside] == above + key)
    return np.where(usable, best[inside], span + 1)


def _still_in_effect(classes: Classes, refused: int) -> Finding:
    clusters, steps = classes.clusters, classes.clusters.steps
    low = np.flatnonzero(
        ~classes.optional
        & (clusters.key == steps.key[refused])
        & (clusters.token <= steps.token[refused])
    )
    cluster = int(low[np.argmax(clusters.last[low])])
    rows = [clusters.last_row(cluster)]
    seen = np.flatnonzero(classes.sight_code // classes.width == steps.key[refused])
    seen = seen[classes.sight_code[seen] % classes.width <= steps.token[refused]]
    if len(seen):
        sight = int(classes.sights[seen[np.argmax(steps.call[classes.sights[seen]])]])
        if steps.call[sight] > clusters.last[cluster]:
            rows = [sight]
    found = [row for row in clusters.witness(*rows) if row != refused]
    where = found.index(rows[0])
    text = (
        f"{{{len(found)}}} was answered before this token or a lower one was still in effect: "
        f"{{{where}}}"
    )
    return Finding("refused-newest", (*found, refused), text)
