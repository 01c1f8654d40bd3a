"""The register with compare-and-set: `cas` [old, new] succeeds when the value is old.

Exact in O(n log n) when each value is written once on a key and a refused compare-and-set says what
it saw.  A successful cas follows the value that it expected at once, and a value never returns, so
values form chains; a chain is contiguous in every explanation and plays the part that a single
write plays in the plain register.  An unknown write must have happened if its value was seen, or if
something that happened expected it.
"""

from dataclasses import fields, replace

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
from harness.checking.steps import CAS, REFUSED, UNKNOWN, WRITE, Steps
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
    changes = (steps.kind == WRITE) | (steps.kind == CAS)
    writes = (changes & (steps.outcome <= UNKNOWN)).nonzero()[0]
    before = _parents(steps, writes)
    reads = reads_of(steps)
    if len(refused):
        reads = np.sort(np.concatenate((reads, refused)))
    clusters = gather(steps, writes, steps.value[writes], reads)
    if isinstance(clusters, Finding):
        return clusters
    return _judge_chains(clusters, before)


def _parents(steps: Steps, writes: Ints) -> Ints:
    """Return for each cluster the one that its cas expects, _ROOT for a write, or _NOBODY."""
    keys = steps.keys
    place = (steps.kind[writes] == CAS).nonzero()[0]
    swaps = writes[place]
    expected = steps.expected[swaps]
    found = find_writes(steps, writes, steps.value[writes], swaps, expected)
    parent = found + keys
    missing = (found < 0).nonzero()[0]
    started = expected[missing] == steps.initial
    parent[missing] = np.where(started, steps.key[swaps[missing]], _NOBODY)
    out = np.full(keys + len(writes), _ROOT, np.int64)
    out[keys + place] = parent
    return out


def _judge_chains(clusters: Clusters, parent: Ints) -> Finding | None:
    needed = _needed(clusters, parent)
    nodes = needed.nonzero()[0]
    above = parent[nodes]
    lost = nodes[above == _NOBODY]
    if len(lost):
        text = "a cas succeeded from a value that nobody ever wrote: {0}"
        rows = clusters.witness(int(clusters.row[lost[0]]))
        return Finding("phantom-read", rows, text.format(f"{{{_at(clusters, rows, lost[0])}}}"))
    inner = above >= 0
    children, above = nodes[inner], above[inner]
    taken = np.zeros(len(needed), np.int64)
    taken[above] = children
    if not np.array_equal(taken[above], children):
        order = children[above.argsort(kind="stable")]
        twice = np.flatnonzero(parent[order[1:]] == parent[order[:-1]])
        return _won_twice(clusters, int(order[twice[0]]), int(order[twice[0] + 1]))
    root, depth = _roots(parent, children, len(needed))
    mine = root[nodes]
    circle = parent[mine] >= 0
    if circle.any():
        return _circle(clusters, parent, int(nodes[circle.argmax()]))
    order = nodes[(mine * (int(depth.max()) + 1) + depth[nodes]).argsort()]
    return _inside(clusters, order, root[order]) or _between(clusters, order, root[order])


def _needed(clusters: Clusters, parent: Ints) -> Flags:
    """Return which clusters must have happened: what was seen, and all that it builds on."""
    needed = ~clusters.optional
    todo = needed.nonzero()[0]
    while len(todo):
        below = parent[todo]
        todo = below[(below >= 0) & ~needed[below]]
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
    base = (_heads(root).cumsum() - 1) * span
    first, last = base + clusters.first[order], base + clusters.last[order]
    reach = np.maximum.accumulate(last)
    wrong = first[1:] < reach[:-1]
    if not wrong.any():
        return None
    later = int(wrong.argmax()) + 1
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


def _heads(root: Ints) -> Flags:
    """Return which rows of an order by chains are the first of theirs."""
    head = np.ones(len(root), bool)
    np.not_equal(root[1:], root[:-1], out=head[1:])
    return head


def _between(clusters: Clusters, order: Ints, root: Ints) -> Finding | None:
    """Find two chains of one key that must each come before the other."""
    start = _heads(root).nonzero()[0]
    chains = root[start]
    first = np.minimum.reduceat(clusters.first[order], start)
    last = np.maximum.reduceat(clusters.last[order], start)
    base = clusters.key[chains] * (clusters.steps.never + 2)
    pair = conflict(base + first, base + last)
    if pair is None:
        return None
    whole = _Chains(clusters, order, root)
    return two_cycle(whole, *(int(chains[at]) for at in pair))


class _Chains(Clusters):
    """Chains as clusters, each with the number of its first member."""

    def __init__(self, clusters: Clusters, order: Ints, root: Ints) -> None:
        super().__init__(**{f.name: getattr(clusters, f.name) for f in fields(Clusters)})
        object.__setattr__(self, "_members", (order, root))

    def _of(self, chain: int) -> Ints:
        order, root = self._members  # type: ignore[attr-defined] # set by __init__, frozen
        return order[root == chain]  # type: ignore[no-any-return] # an array

    def first_row(self, cluster: int) -> int:
        """Return the row of the chain that ended first."""
        mine = self._of(cluster)
        return super().first_row(int(mine[self.first[mine].argmin()]))

    def last_row(self, cluster: int) -> int:
        """Return the row of the chain that began last."""
        mine = self._of(cluster)
        return super().last_row(int(mine[self.last[mine].argmax()]))
