"""The register with compare-and-set: `cas` [old, new] succeeds when the value is old.

Exact in O(n log n) when each value is written once on a key and a refused compare-and-set says what
it saw.  A successful cas follows the value that it expected at once, and a value never returns, so
values form chains; a chain is contiguous in every explanation and plays the part that a single
write plays in the plain register.  An unknown write must have happened if its value was seen, or if
something that happened expected it.
"""

from dataclasses import replace

import numpy as np

from harness.checking.clusters import (
    Clusters,
    conflict,
    find_writes,
    gather,
    reads_of,
    two_cycle,
)
from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.steps import CAS, DONE, REFUSED, UNKNOWN, WRITE, Steps
from harness.checking.values import Flags, Ints

_ROOT = -1
_NOBODY = -2


def judge_cas(steps: Steps) -> Finding | None:
    """Return what is wrong, None when some order explains everything.

    Raises RepeatedValuesError, also for a refused cas that does not say what it saw.
    """
    if not len(steps.call):
        return None
    refused = steps.rows(CAS, REFUSED)
    silent = refused[steps.seen[refused] < 0]
    if len(silent):
        keys = np.unique(steps.key[silent]).tolist()
        raise RepeatedValuesError(keys, "a failed cas does not say what it saw")
    wrong = refused[steps.seen[refused] == steps.expected[refused]]
    if len(wrong):
        text = "a cas was refused although it saw the value that it expected: {0}"
        return Finding("stale-read", (int(wrong[0]),), text)
    live = (steps.outcome == DONE) | (steps.outcome == UNKNOWN)
    writes = np.flatnonzero(live & ((steps.kind == WRITE) | (steps.kind == CAS)))
    swaps = writes[steps.kind[writes] == CAS]
    before = _parents(steps, writes, swaps)
    reads = np.sort(np.concatenate([reads_of(steps), refused]))
    clusters = gather(steps, writes, steps.value[writes], reads)
    if isinstance(clusters, Finding):
        return clusters
    return _judge_chains(clusters, before)


def _parents(steps: Steps, writes: Ints, swaps: Ints) -> Ints:
    """Return for each cluster the one that its cas expects, _ROOT for a write, or _NOBODY."""
    keys = steps.keys
    expected = steps.expected[swaps]
    found = find_writes(steps, writes, steps.value[writes], swaps, expected)
    parent = np.where(found >= 0, found + keys, _NOBODY)
    initial = (found < 0) & (expected == steps.initial)
    parent[initial] = steps.key[swaps[initial]]
    out = np.full(keys + len(writes), _ROOT, np.int64)
    out[keys + np.flatnonzero(steps.kind[writes] == CAS)] = parent
    return out


def _judge_chains(clusters: Clusters, parent: Ints) -> Finding | None:
    needed = _needed(clusters, parent)
    nodes = np.flatnonzero(needed)
    lost = nodes[parent[nodes] == _NOBODY]
    if len(lost):
        text = "a cas succeeded from a value that nobody ever wrote: {0}"
        rows = clusters.witness(int(clusters.row[lost[0]]))
        return Finding("phantom-read", rows, text.format(f"{{{_at(clusters, rows, lost[0])}}}"))
    children = nodes[parent[nodes] >= 0]
    order = children[np.argsort(parent[children], kind="stable")]
    twice = np.flatnonzero(parent[order[1:]] == parent[order[:-1]])
    if len(twice):
        return _won_twice(clusters, int(order[twice[0]]), int(order[twice[0] + 1]))
    root, depth = _roots(parent, children, len(needed))
    circle = nodes[parent[root[nodes]] >= 0]
    if len(circle):
        return _circle(clusters, parent, int(circle[0]))
    order = nodes[np.lexsort((depth[nodes], root[nodes]))]
    return _inside(clusters, order, root[order]) or _between(clusters, order, root[order])


def _needed(clusters: Clusters, parent: Ints) -> Flags:
    """Return which clusters must have happened: what was seen, and all that it builds on."""
    needed = ~clusters.optional
    todo = np.flatnonzero(needed)
    while len(todo):
        below = parent[todo]
        below = np.unique(below[below >= 0])
        todo = below[~needed[below]]
        needed[todo] = True
    return needed


def _at(clusters: Clusters, rows: tuple[int, ...], cluster: int) -> int:
    return rows.index(int(clusters.row[cluster]))


def _won_twice(clusters: Clusters, one: int, other: int) -> Finding:
    pair = sorted((int(clusters.row[one]), int(clusters.row[other])))
    found = [row for row in clusters.witness(*pair) if row not in pair]
    first = len(found)
    text = f"two operations took the place of one value: {{{first}}} and {{{first + 1}}}"
    return Finding("lost-update", (*found, *pair), text)


def _roots(parent: Ints, children: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the first cluster of each one's chain and the distance to it, by doubling jumps."""
    jump = np.arange(count)
    depth = np.zeros(count, np.int64)
    jump[children] = parent[children]
    depth[children] = 1
    for _ in range(max(1, count.bit_length()) + 1):
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        depth += depth[jump]
        jump = further
    return jump, depth


def _circle(clusters: Clusters, parent: Ints, node: int) -> Finding:
    seen = dict.fromkeys([node])
    while (node := int(parent[node])) not in seen:
        seen[node] = None
    members = list(seen)[list(seen).index(node) :]
    rows = clusters.witness(*(int(clusters.row[m]) for m in members))
    text = "successful cas feed each other in a circle, so none can be first; one is {0}"
    return Finding("lost-update", rows, text)


def _inside(clusters: Clusters, order: Ints, root: Ints) -> Finding | None:
    """Find a value of a chain that was seen again after a later one of the chain."""
    span = clusters.steps.never + 2
    head = np.concatenate([[True], root[1:] != root[:-1]])
    base = (np.cumsum(head) - 1) * span
    first, last = base + clusters.first[order], base + clusters.last[order]
    reach = np.maximum.accumulate(last)
    wrong = np.flatnonzero(first[1:] < reach[:-1])
    if not len(wrong):
        return None
    later = int(wrong[0]) + 1
    earlier = int(np.argmax(last[:later]))
    one, other = int(order[earlier]), int(order[later])
    between = order[earlier : later + 1]
    finding = two_cycle(clusters, one, other)
    if len(between) > 6:
        return finding
    swaps = [int(row) for row in clusters.row[between] if row >= 0]
    return _joined(clusters, finding, swaps)


def _joined(clusters: Clusters, finding: Finding, more: list[int]) -> Finding:
    """Add the rows that make the others follow each other, without a change of the sentence."""
    late = finding.rows[-1]
    rows = [row for row in clusters.witness(*finding.rows, *more) if row != late]
    places = {str(i): str(rows.index(row)) for i, row in enumerate(finding.rows[:-1])}
    places[str(len(finding.rows) - 1)] = str(len(rows))
    template = finding.template
    for old, new in places.items():
        template = template.replace(f"{{{old}}}", f"<{new}>")
    return replace(
        finding,
        rows=(*rows, late),
        template=template.replace("<", "{").replace(">", "}"),
    )


def _between(clusters: Clusters, order: Ints, root: Ints) -> Finding | None:
    """Find two chains of one key that must each come before the other."""
    start = np.flatnonzero(np.concatenate([[True], root[1:] != root[:-1]]))
    chains = root[start]
    first, last = clusters.first.copy(), clusters.last.copy()
    first[chains] = np.minimum.reduceat(clusters.first[order], start)
    last[chains] = np.maximum.reduceat(clusters.last[order], start)
    whole = _Chains(clusters, order, root, first, last)
    return conflict(whole, chains, clusters.key[chains], clusters.steps.never + 2)


class _Chains(Clusters):
    """Chains as clusters: `first` and `last` are those of all their members."""

    def __init__(
        self, clusters: Clusters, order: Ints, root: Ints, first: Ints, last: Ints
    ) -> None:
        names = ("steps", "row", "key", "token", "call", "optional", "reads", "source")
        kept = {name: getattr(clusters, name) for name in names}
        super().__init__(**kept, first=first, last=last)
        object.__setattr__(self, "_parts", (clusters, order, root))

    def _pick(self, chain: int, times: Ints, wanted: int) -> int:
        _, order, root = self._parts  # type: ignore[attr-defined] # set by __init__, frozen
        members = order[root == chain]
        return int(members[np.flatnonzero(times[members] == wanted)[0]])

    def first_row(self, cluster: int) -> int:
        """Return the row of the chain that ended first."""
        inner: Clusters = self._parts[0]  # type: ignore[attr-defined]
        return inner.first_row(self._pick(cluster, inner.first, int(self.first[cluster])))

    def last_row(self, cluster: int) -> int:
        """Return the row of the chain that began last."""
        inner: Clusters = self._parts[0]  # type: ignore[attr-defined]
        return inner.last_row(self._pick(cluster, inner.last, int(self.last[cluster])))
