"""Token classes: the clusters of a fenced register, in the order that their tokens force."""

from dataclasses import dataclass

import numpy as np

from harness.checking.clusters import Clusters
from harness.checking.finding import Finding
from harness.checking.steps import READ, REFUSED, UNTOLD
from harness.checking.values import Flags, Ints


@dataclass(frozen=True, eq=False)
class Classes:
    """The mandatory clusters of a history by key and token.

    `code` = key * width + token orders classes; `sights` are the rows that tell the highest token
    and nothing else, `sight_code` the class each of them saw.  `members`: clusters in the order of
    `group`, the number of their class.  A class's `first` and `last` count its sights, too.
    """

    clusters: Clusters
    code_of: Ints
    width: int
    optional: Flags
    sights: Ints
    sight_code: Ints
    members: Ints
    group: Ints
    start: Ints
    code: Ints
    key: Ints
    first: Ints
    last: Ints
    span: int


def classify(clusters: Clusters) -> Classes | Finding:
    """Sort the clusters into classes, or find a token that was seen and never written."""
    steps = clusters.steps
    told = (steps.told > UNTOLD) & (
        (steps.outcome == REFUSED) | ((steps.kind == READ) & (steps.seen < 0))
    )
    sights = told.nonzero()[0]
    width = steps.tokens + 1
    code_of = clusters.token
    if steps.keys > 1:
        code_of = clusters.key * width + code_of
    sight_code = steps.key[sights] * width + steps.told[sights]
    optional = _taken(clusters, code_of, sight_code) if len(sights) else clusters.optional
    if isinstance(optional, int):
        text = "a token was seen that no accepted write carried: {0}"
        return Finding("phantom-read", (int(sights[optional]),), text)
    members = (~optional).nonzero()[0]
    members = members[code_of[members].argsort(kind="stable")]
    codes = code_of[members]
    head = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=head[1:])
    start = head.nonzero()[0]
    code = codes[start]
    first = np.minimum.reduceat(clusters.first[members], start)
    last = np.maximum.reduceat(clusters.last[members], start)
    if len(sights):
        at = code.searchsorted(sight_code)
        np.minimum.at(first, at, steps.ret[sights])
        np.maximum.at(last, at, steps.call[sights])
    return Classes(
        clusters=clusters,
        code_of=code_of,
        width=width,
        optional=optional,
        sights=sights,
        sight_code=sight_code,
        members=members,
        group=head.cumsum() - 1,
        start=start,
        code=code,
        key=clusters.key[members[start]],
        first=first,
        last=last,
        span=steps.never + 2,
    )


def _taken(clusters: Clusters, code_of: Ints, sight_code: Ints) -> Flags | int:
    """Return which clusters stay optional: a token that was seen needs a write.

    If only unknown writes carry it, the one called first did.  Returns the position of a sight
    whose token no write carried.
    """
    optional = clusters.optional.copy()
    lacking = np.setdiff1d(sight_code, code_of[~optional])
    if not len(lacking):
        return optional
    unknown = np.flatnonzero(optional)
    unknown = unknown[np.lexsort((clusters.call[unknown], code_of[unknown]))]
    codes = code_of[unknown]
    at = np.searchsorted(codes, lacking)
    gone = np.ones(len(lacking), bool)
    inside = at < len(codes)
    gone[inside] = codes[at[inside]] != lacking[inside]
    if gone.any():
        return int(np.flatnonzero(sight_code == lacking[gone][0])[0])
    optional[unknown[at]] = False
    return optional
