"""A fence that many objects share, and seals, which raise its token without a write.

Exact in O(n log n) under the condition of the fenced register.  Accepted writes of all objects go
by token, so between two classes of tokens there is an instant that all writes of the lower class
come before and all of the higher one after.  Every rule bounds these instants from above or from
below, and no rule bounds one by another, so the latest ones that are possible decide; for them each
object is a plain register.  A seal is a write to an object that nobody reads.  The theorem and its
proof are in docs/explanation/fenced-check.md.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.checking.clusters import Clusters, conflict, gather, reads_of, told_wrong
from harness.checking.columns import Columns
from harness.checking.fenced import refused_by_a_low_token
from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.steps import DONE, READ, REFUSED, UNKNOWN, UNTOLD, WRITE, Steps, steps_of
from harness.checking.values import NOT_TOLD, Flags, Ints, Names


def with_one_fence(columns: Columns) -> Columns:
    """Return the columns with one key, and what was the key of each call as what it expects."""
    names = np.array([columns.values.id(name) for name in columns.keys.names], np.int64)
    count = len(columns)
    expected = names[columns.key] if count else columns.expected
    key = np.zeros(count, np.int64)
    return replace(columns, key=key, keys=Names(["all keys"]), expected=expected)


def has_seals(columns: Columns) -> bool:
    """Whether something raised a token without a write."""
    seal = columns.kinds.find("seal")
    return seal >= 0 and bool((columns.kind == seal).any())


def judge_fences(columns: Columns, initial: object) -> Finding | None:
    """Return what is wrong, None when some order explains everything; each key is a fence.

    Raises RepeatedValuesError.
    """
    if not len(columns):
        return None
    steps, fence = _objects(columns, initial)
    writes = steps.rows(WRITE, DONE, UNKNOWN)
    try:
        clusters = gather(steps, writes, steps.value[writes], reads_of(steps))
    except RepeatedValuesError as error:
        raise RepeatedValuesError(fence[list(error.keys)].tolist(), error.reason) from None
    if isinstance(clusters, Finding):
        return clusters
    wrong = told_wrong(clusters) or refused_by_a_low_token(steps)
    return wrong or _judge(clusters, fence)


def _objects(columns: Columns, initial: object) -> tuple[Steps, Ints]:
    """Return the steps with a key for each object, and the fence of each of these keys."""
    seals = columns.kinds_as({"seal": 1}, 0)
    width = int(columns.expected.max()) + 2
    known, key = np.unique(
        (columns.key * width + columns.expected + 1) * 2 + seals, return_inverse=True
    )
    fence = np.unique(known // (2 * width), return_inverse=True)[1]
    kinds = ["write" if name == "seal" else name for name in columns.kinds.names]
    made = replace(columns, key=key, keys=Names(range(len(known))), kinds=Names(kinds))
    return steps_of(made, initial, fenced=True), fence


@dataclass(frozen=True, eq=False)
class _Groups:
    """The mandatory clusters by object and token; `number` is the group of each member.

    `last` is the latest call of a group, `reach` that of the object up to the group.
    """

    members: Ints
    number: Ints
    start: Ints
    code: Ints
    width: int
    last: Ints
    reach: Ints

    @property
    def key(self) -> Ints:
        """The object of each."""
        return self.code // self.width

    def before(self, key: Ints, token: Ints) -> Ints:
        """Return the latest call on a lower token of the same object, 0 without one."""
        at = np.searchsorted(self.code, key * self.width + token) - 1
        mine = (at >= 0) & (self.key[at] == key)
        return np.where(mine, self.reach[at], 0)


def _groups(clusters: Clusters, optional: Flags, width: int, span: int) -> _Groups:
    members = np.flatnonzero(~optional)
    codes = clusters.key[members] * width + clusters.token[members]
    order = codes.argsort(kind="stable")
    members, codes = members[order], codes[order]
    head = np.concatenate([[True], codes[1:] != codes[:-1]])
    start = np.flatnonzero(head)
    code = codes[start]
    last = np.maximum.reduceat(clusters.last[members], start)
    base = code // width * span
    reach = np.maximum.accumulate(base + last) - base
    return _Groups(members, np.cumsum(head) - 1, start, code, width, last, reach)


@dataclass(frozen=True, eq=False)
class _Fences:
    """All that the rules need: `of` is the class of each group, `codes` its fence and token.

    `sights` are the rows that tell a token and nothing else, `seen` the class that each of them
    saw; `refused` those that were refused and told nothing, `above` the class after each of them.
    """

    clusters: Clusters
    fence: Ints
    optional: Flags
    groups: _Groups
    codes: Ints
    of: Ints
    sights: Ints
    seen: Ints
    refused: Ints
    above: Ints
    span: int

    def is_next(self, after: Ints) -> Flags:
        """Return whether there is a class of the same fence before each of these."""
        fences = self.codes // self.groups.width
        inside = (after > 0) & (after < len(fences))
        inside[inside] = fences[after[inside] - 1] == fences[after[inside]]
        return inside

    @cached_property
    def limit(self) -> Ints:
        """The latest instant by which all writes of a class have taken effect."""
        clusters, groups = self.clusters, self.groups
        steps = clusters.steps
        first = np.full(len(self.codes), self.span, np.int64)
        np.minimum.at(first, self.of[groups.number], clusters.first[groups.members])
        limit = np.full(len(self.codes), self.span - 1, np.int64)
        later = np.flatnonzero(self.is_next(np.arange(len(self.codes))))
        limit[later - 1] = np.minimum(limit[later - 1], first[later])
        after = self.is_next(self.seen)
        np.minimum.at(limit, self.seen[after] - 1, steps.ret[self.sights[after]])
        below = self.above - 1
        fence = self.fence[steps.key[self.refused]]
        mine = (below >= 0) & (self.codes[below] // groups.width == fence)
        np.minimum.at(limit, below[mine], steps.ret[self.refused[mine]])
        base = self.codes // groups.width * self.span
        return np.minimum.accumulate((base + limit)[::-1])[::-1] - base

    @cached_property
    def first(self) -> Ints:
        """The time by which something of each member was over, its write by the limit."""
        groups = self.groups
        return np.minimum(self.clusters.first[groups.members], self.limit[self.of[groups.number]])


def _judge(clusters: Clusters, fence: Ints) -> Finding | None:
    steps = clusters.steps
    width, span = steps.tokens + 1, steps.never + 2
    is_sight = (steps.outcome == REFUSED) | ((steps.kind == READ) & (steps.seen < 0))
    sights = np.flatnonzero(is_sight & (steps.told > UNTOLD))
    sight_code = fence[steps.key[sights]] * width + steps.told[sights]
    code_of = fence[clusters.key] * width + clusters.token
    optional = _taken(clusters, code_of, sight_code, width)
    if isinstance(optional, int):
        text = "a token was seen that no accepted write carried: {0}"
        return Finding("phantom-read", (int(sights[optional]),), text)
    groups = _groups(clusters, optional, width, span)
    codes, of = np.unique(code_of[groups.members[groups.start]], return_inverse=True)
    refused = np.flatnonzero((steps.outcome == REFUSED) & (steps.told == UNTOLD))
    refused_code = fence[steps.key[refused]] * width + steps.token[refused]
    fences = _Fences(
        clusters=clusters,
        fence=fence,
        optional=optional,
        groups=groups,
        codes=codes,
        of=of,
        sights=sights,
        seen=np.searchsorted(codes, sight_code),
        refused=refused,
        above=np.searchsorted(codes, refused_code, side="right"),
        span=span,
    )
    return _too_late(fences) or _across(fences) or _inside(fences) or _unexplained(fences, code_of)


def _taken(clusters: Clusters, code_of: Ints, sight_code: Ints, width: int) -> Flags | int:
    """Return which clusters stay optional: a token that was seen needs a write.

    If only unknown writes carry it, the one that can take effect first did.  Returns the position
    of a sight whose token no write carried.
    """
    optional = clusters.optional.copy()
    lacking = np.setdiff1d(sight_code, code_of[~optional])
    if not len(lacking):
        return optional
    groups = _groups(clusters, optional, width, clusters.steps.never + 2)
    unknown = np.flatnonzero(optional)
    ready = _ready(clusters, groups, unknown)
    order = np.lexsort((ready, code_of[unknown]))
    codes = code_of[unknown[order]]
    at = np.searchsorted(codes, lacking)
    gone = np.ones(len(lacking), bool)
    inside = at < len(codes)
    gone[inside] = codes[at[inside]] != lacking[inside]
    if gone.any():
        return int(np.flatnonzero(sight_code == lacking[gone][0])[0])
    optional[unknown[order[at]]] = False
    return optional


def _ready(clusters: Clusters, groups: _Groups, members: Ints) -> Ints:
    """Return when each write can take effect: called, and all lower tokens of its object over."""
    before = groups.before(clusters.key[members], clusters.token[members])
    return np.maximum(clusters.call[members], before)


def _too_late(fences: _Fences) -> Finding | None:
    """Find a write, or a sight, that began when a higher token must have been in effect."""
    clusters, groups = fences.clusters, fences.groups
    of = fences.of[groups.number]
    wrong = np.flatnonzero(clusters.call[groups.members] > fences.limit[of])
    if len(wrong):
        return _name(fences, int(of[wrong[0]]), int(clusters.row[groups.members[wrong[0]]]))
    calls = clusters.steps.call[fences.sights]
    wrong = np.flatnonzero(calls > fences.limit[fences.seen])
    if len(wrong):
        return _name(fences, int(fences.seen[wrong[0]]), int(fences.sights[wrong[0]]))
    return None


def _across(fences: _Fences) -> Finding | None:
    """Find an object whose value was seen after a write of it with a higher token was over."""
    clusters, groups = fences.clusters, fences.groups
    base = groups.key * fences.span
    first = np.minimum.reduceat(fences.first, groups.start)
    higher = np.minimum.accumulate((base + first)[::-1])[::-1]
    follows = groups.key[1:] == groups.key[:-1]
    wrong = np.flatnonzero(follows & ((base + groups.last)[:-1] > higher[1:]))
    if not len(wrong):
        return None
    at = int(wrong[0])
    mine = groups.members[groups.number == at]
    late = clusters.last_row(int(mine[clusters.last[mine].argmax()]))
    above = np.flatnonzero((groups.key[groups.number] == groups.key[at]) & (groups.number > at))
    newer = int(above[fences.first[above].argmin()])
    return _name_pair(fences, newer, late)


def _inside(fences: _Fences) -> Finding | None:
    """Find two values of one object and token that must each come before the other."""
    groups = fences.groups
    base = groups.number * fences.span
    last = fences.clusters.last[groups.members]
    pair = conflict(base + fences.first, base + last)
    if pair is None:
        return None
    older, newer = sorted(pair, key=lambda at: int(last[at]), reverse=True)
    return _name_pair(fences, newer, fences.clusters.last_row(int(groups.members[older])))


def _unexplained(fences: _Fences, code_of: Ints) -> Finding | None:
    """Find a refusal, or a sight, before which no write with such a token can have been first."""
    clusters, groups, span = fences.clusters, fences.groups, fences.span
    steps, width, codes = clusters.steps, groups.width, fences.codes
    starts = np.full(len(codes), span, np.int64)
    np.minimum.at(starts, fences.of[groups.number], _starts(fences))
    unknown = np.flatnonzero(fences.optional)
    maybe, ready = code_of[unknown], _ready(clusters, groups, unknown)
    seen = starts.copy()
    at = np.minimum(np.searchsorted(codes, maybe), len(codes) - 1)
    same = codes[at] == maybe
    np.minimum.at(seen, at[same], ready[same])
    wrong = np.flatnonzero(seen[fences.seen] > steps.ret[fences.sights])
    if len(wrong):
        text = "a token was seen before any write with it can have taken effect: {0}"
        return Finding("phantom-read", (int(fences.sights[wrong[0]]),), text)
    every, calls = np.concatenate([codes, maybe]), np.concatenate([starts, ready])
    order = every.argsort(kind="stable")
    every, calls = every[order], calls[order]
    gap = np.searchsorted(codes, every, side="left") + every // width
    best = np.minimum.accumulate((gap * span + calls)[::-1])[::-1] - gap * span
    fence = fences.fence[steps.key[fences.refused]]
    place = np.searchsorted(every, fence * width + steps.token[fences.refused], side="right")
    inside = np.minimum(place, len(every) - 1)
    usable = (place < len(every)) & (gap[inside] == fences.above + fence)
    early = np.where(usable, best[inside], span)
    wrong = np.flatnonzero(early > steps.ret[fences.refused])
    if not len(wrong):
        return None
    text = "a write was refused although no higher token can have been in effect by then: {0}"
    return Finding("refused-newest", (int(fences.refused[wrong[0]]),), text)


def _starts(fences: _Fences) -> Ints:
    """Return for each member when it can take effect as the first of its group, if it can be."""
    clusters, groups, first = fences.clusters, fences.groups, fences.first
    least = np.minimum.reduceat(first, groups.start)[groups.number]
    is_least = first == least
    many = np.add.reduceat(is_least.astype(np.int64), groups.start)[groups.number] > 1
    rest = np.minimum.reduceat(np.where(is_least, fences.span, first), groups.start)
    others = np.where(is_least & ~many, rest[groups.number], least)
    leads = clusters.last[groups.members] <= others
    return np.where(leads, _ready(clusters, groups, groups.members), fences.span)


def _cause(fences: _Fences, number: int) -> int:
    """Return the row that bounds the limit of a class, -1 for the beginning of the history."""
    clusters, groups, steps = fences.clusters, fences.groups, fences.clusters.steps
    fence, limit = fences.codes[number] // groups.width, fences.limit[number]
    of = fences.of[groups.number]
    mine = fences.codes[of] // groups.width == fence
    hit = np.flatnonzero(mine & (of > number) & (clusters.first[groups.members] == limit))
    if len(hit):
        return clusters.first_row(int(groups.members[hit[0]]))
    rows = np.concatenate([fences.refused, fences.sights])
    above = np.concatenate([fences.above, fences.seen])
    of_fence = fences.fence[steps.key[rows]] == fence
    hit = np.flatnonzero(of_fence & (above > number) & (steps.ret[rows] == limit))
    return int(rows[hit[0]]) if len(hit) else NOT_TOLD


def _name(fences: _Fences, number: int, late: int) -> Finding:
    """Name what began after a higher token must have been in effect."""
    clusters, steps = fences.clusters, fences.clusters.steps
    cause = _cause(fences, number)
    if cause < 0:
        text = "the token was lower from the beginning than the highest one: {0}"
        return Finding("stale-owner-write", (late,), text)
    wrote = steps.kind[late] == WRITE and steps.outcome[late] != REFUSED
    if steps.outcome[cause] == REFUSED and steps.told[cause] == UNTOLD:
        rows = (*(row for row in clusters.witness(late) if row != cause), cause)
        last, where = len(rows) - 1, rows.index(late)
        text = f"{{{last}}} was answered before this token or a lower one was used: {{{where}}}"
        return Finding("refused-newest", rows, text)
    rows = (*(row for row in clusters.witness(cause, late) if row != late), late)
    what = "was accepted" if wrote else "saw a lower token"
    text = f"{{{len(rows) - 1}}} {what} after a higher token had been in effect"
    text += f": {{{rows.index(cause)}}}"
    return Finding("stale-owner-write" if wrote else "stale-read", rows, text)


def _name_pair(fences: _Fences, newer: int, late: int) -> Finding:
    """Name a sight of a value although a newer one of its object must have replaced it."""
    clusters, groups = fences.clusters, fences.groups
    cluster = int(groups.members[newer])
    shown = clusters.first_row(cluster)
    rows = [late, shown, int(clusters.row[cluster])]
    if fences.first[newer] < clusters.first[cluster]:
        rows.append(_cause(fences, int(fences.of[groups.number[newer]])))
    found = [row for row in clusters.witness(*rows) if row != late]
    rest = (*found, late)
    where = rest.index(shown) if shown in rest else 0
    text = f"{{{len(found)}}} saw a value although a newer one must have been there: {{{where}}}"
    return Finding("stale-read", rest, text)
