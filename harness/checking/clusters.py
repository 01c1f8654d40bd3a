"""A cluster is one written value: its write, and the reads that saw it.

When each value is written once on a key, a read names its write.  What decides is then only when a
cluster was surely in effect: `first`, the earliest return in it, and `last`, the latest call.  If
`first` of A comes before `last` of B, something of A ended before something of B began, so A's
write comes before B's in every explanation.  The initial value of a key is a cluster that was
written before every event.  docs/explanation/fenced-check.md has the proof.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.checking.finding import Finding, RepeatedValuesError
from harness.checking.steps import DONE, GONE, READ, REFUSED, UNKNOWN, UNTOLD, WRITE, Steps
from harness.checking.values import NOT_TOLD, Flags, Ints


@dataclass(frozen=True, eq=False)
class Clusters:
    """All clusters of a history, the initial values (one a key) first.

    `row`: the write, -1 for an initial value.  `optional`: a write of unknown outcome that nobody
    saw, which need not have happened.  `reads`: rows; `source`: the cluster of each of them.
    """

    steps: Steps
    row: Ints
    call: Ints
    first: Ints
    last: Ints
    optional: Flags
    reads: Ints
    source: Ints

    @cached_property
    def key(self) -> Ints:
        """The key of each cluster."""
        keys = self.steps.keys
        return np.concatenate((np.arange(keys), self.steps.key[self.row[keys:]]))

    @cached_property
    def token(self) -> Ints:
        """The token of each cluster."""
        keys = self.steps.keys
        start = np.full(keys, self.steps.initial_token)
        return np.concatenate((start, self.steps.token[self.row[keys:]]))

    def first_row(self, cluster: int) -> int:
        """Return the row that ended first, -1 for the initial value."""
        return self._extreme(cluster, self.steps.ret, int(self.first[cluster]))

    def last_row(self, cluster: int) -> int:
        """Return the row that began last, -1 for an initial value that nobody read."""
        return self._extreme(cluster, self.steps.call, int(self.last[cluster]))

    def _extreme(self, cluster: int, times: Ints, wanted: int) -> int:
        row = int(self.row[cluster])
        if row >= 0 and times[row] == wanted:
            return row
        hit = np.flatnonzero((self.source == cluster) & (times[self.reads] == wanted))
        return int(self.reads[hit[0]]) if len(hit) else -1

    def witness(self, *rows: int) -> tuple[int, ...]:
        """Return distinct rows in the order of their calls, each read with its write.

        A write of unknown outcome brings the read that saw it first.
        """
        steps, keys = self.steps, self.steps.keys
        out = {row for row in rows if row >= 0}
        for row in tuple(out):
            at = _place(self.reads, row)
            if at >= 0:
                out.add(int(self.row[self.source[at]]))
        out.discard(-1)
        for row in tuple(out):
            if steps.outcome[row] == UNKNOWN:
                mine = self.reads[self.source == _place(self.row[keys:], row) + keys]
                if len(mine) and not out & set(mine.tolist()):
                    out.add(int(mine[steps.ret[mine].argmin()]))
        return tuple(sorted(out, key=lambda row: (int(steps.call[row]), row)))


def _place(rows: Ints, row: int) -> int:
    """Return where a row is in rising rows, -1 when it is not."""
    at = int(rows.searchsorted(row))
    return at if at < len(rows) and rows[at] == row else -1


def gather(steps: Steps, writes: Ints, written: Ints, reads: Ints) -> Clusters | Finding:
    """Return the clusters, or what is impossible about a read by itself.

    Raises RepeatedValuesError with the keys on which a read does not name its write.
    """
    keys = steps.keys
    wanted = steps.seen[reads]
    found = find_writes(steps, writes, written, reads, wanted)
    source = found + keys
    missing = (found < 0).nonzero()[0]
    if len(missing):
        nowhere = missing[wanted[missing] != steps.initial]
        if len(nowhere):
            return _from_nowhere(steps, int(reads[nowhere[0]]))
        source[missing] = steps.key[reads[missing]]
    start = np.zeros(keys, np.int64)
    call = np.concatenate((start, steps.call[writes]))
    row = np.concatenate((start - 1, writes))
    ended = steps.ret[reads]
    early = (ended < call[source]).nonzero()[0]
    if len(early):
        rows = (int(row[source[early[0]]]), int(reads[early[0]]))
        text = "a value was read before anybody wrote it: {1} ended before {0} began"
        return Finding("phantom-read", rows, text)
    first = np.concatenate((start, steps.ret[writes]))
    last = call.copy()
    np.minimum.at(first, source, ended)
    np.maximum.at(last, source, steps.call[reads])
    optional = np.concatenate((start > 0, steps.outcome[writes] == UNKNOWN))
    optional[source] = False
    return Clusters(
        steps=steps,
        row=row,
        call=call,
        first=first,
        last=last,
        optional=optional,
        reads=reads,
        source=source,
    )


def find_writes(steps: Steps, writes: Ints, written: Ints, rows: Ints, wanted: Ints) -> Ints:
    """Return for each row the position in `writes` of the write of the wanted value, or NOT_TOLD.

    Raises RepeatedValuesError with the keys on which a wanted value has two writes (or a write and
    the initial state).
    """
    if not len(writes):
        return np.full(len(rows), NOT_TOLD, np.int64)
    position = np.arange(len(writes))
    slot = np.full(steps.values + 1, NOT_TOLD, np.int64)  # the last one is for NOT_TOLD
    slot[written] = position
    found = slot[wanted]
    twice = slot[written] != position
    if slot[steps.initial] >= 0 or len(twice.nonzero()[0]):
        asked = np.zeros(steps.values + 1, bool)
        asked[wanted] = True
        twice |= written == steps.initial
        if (twice & asked[written]).any():
            if steps.keys == 1:
                raise RepeatedValuesError([0])
            return _find_by_key(steps, writes, written, rows, wanted)
    if steps.keys > 1:
        elsewhere = steps.key[writes[found]] != steps.key[rows]
        np.putmask(found, elsewhere, NOT_TOLD)
    return found


def _find_by_key(steps: Steps, writes: Ints, written: Ints, rows: Ints, wanted: Ints) -> Ints:
    size = steps.values
    pair = steps.key[writes] * size + written
    ask = steps.key[rows] * size + np.maximum(wanted, 0)
    order = np.argsort(pair, kind="stable")
    ranked = pair[order]
    again = np.flatnonzero(ranked[1:] == ranked[:-1])
    repeated = ranked[again]
    started = pair[written == steps.initial]
    twice = np.intersect1d(np.concatenate([repeated, started]), ask[wanted >= 0])
    if len(twice):
        raise RepeatedValuesError({int(number) // size for number in twice})
    at = np.searchsorted(ranked, ask)
    inside = np.minimum(at, len(ranked) - 1)
    return np.where((ranked[inside] == ask) & (wanted >= 0), order[inside], NOT_TOLD)


def _from_nowhere(steps: Steps, read: int) -> Finding:
    """Say where the value of a read may have come from, if not from a write that happened."""
    same = np.flatnonzero(
        (steps.kind != READ)
        & (steps.value == steps.seen[read])
        & (steps.outcome >= REFUSED)
        & (steps.key == steps.key[read])
    )
    if len(same):
        how = "was refused" if steps.outcome[same[0]] == REFUSED else "had failed"
        text = f"the value of a write that {how} was read: {{0}}, then {{1}}"
        return Finding("aborted-read", (int(same[0]), read), text)
    elsewhere = np.flatnonzero(
        (steps.kind != READ) & (steps.value == steps.seen[read]) & (steps.outcome < GONE)
    )
    if len(elsewhere) and steps.kind[read] == READ:
        text = "a value was read that was only ever written to another key: {0}"
    else:
        text = "a value was read that nobody ever wrote: {0}"
    return Finding("phantom-read", (read,), text)


def told_wrong(clusters: Clusters) -> Finding | None:
    """Find a read that tells another token than the one its value was written with."""
    steps = clusters.steps
    told = steps.told[clusters.reads]
    wrong = ((told != clusters.token[clusters.source]) & (told > UNTOLD)).nonzero()[0]
    if not len(wrong):
        return None
    cluster = int(clusters.source[wrong[0]])
    rows = clusters.witness(int(clusters.row[cluster]), int(clusters.reads[wrong[0]]))
    text = f"a value was read with a token that it was not written with: {{{len(rows) - 1}}}"
    return Finding("phantom-read", rows, text)


def conflict(first: Ints, last: Ints) -> tuple[int, int] | None:
    """Find two zones that must each come before the other; return their positions.

    A zone is forward (first < last) or backward.  Two forward ones must not overlap, and no
    backward one may lie inside a forward one; there is no other case.  In the order of their
    beginnings, where a backward one comes first of those that begin together, both are one test:
    `first` must not be before the greatest `last` of the forward zones that have begun.
    """
    forward = first < last
    order = (2 * np.minimum(first, last) + forward).argsort()
    starts = first[order]
    reach = np.maximum.accumulate((last * forward)[order])
    wrong = (starts[1:] < reach[:-1]).nonzero()[0]
    if not len(wrong):
        return None
    at = int(wrong[0])
    outer = int((reach == reach[at]).argmax())
    return int(order[outer]), int(order[at + 1])


def two_cycle(clusters: Clusters, one: int, other: int) -> Finding:
    """Name two clusters that must each come before the other; blame the read that came last."""
    late = max(
        (clusters.last_row(c) for c in (one, other)),
        key=lambda row: int(clusters.steps.call[row]) if row >= 0 else -1,
    )
    old, new = (one, other) if late == clusters.last_row(one) else (other, one)
    shown = clusters.first_row(new)
    rows = clusters.witness(
        late, clusters.first_row(old), shown, clusters.last_row(new), int(clusters.row[new])
    )
    rows = (*(row for row in rows if row != late), late)
    where = rows.index(shown) if shown in rows else 0
    name = "read-reversal" if clusters.steps.kind[shown] == READ else "stale-read"
    how = "already been read" if name == "read-reversal" else "been acknowledged"
    text = f"{{{len(rows) - 1}}} saw an older value although a newer one had {how}: {{{where}}}"
    return Finding(name, rows, text)


def writes_of(steps: Steps) -> Ints:
    """Return the rows of the writes that happened or may have."""
    happened: Flags = (steps.kind == WRITE) & (steps.outcome <= UNKNOWN)
    return happened.nonzero()[0]


def reads_of(steps: Steps) -> Ints:
    """Return the rows of the reads that told a value."""
    told: Flags = (steps.kind == READ) & (steps.outcome == DONE) & (steps.seen >= 0)
    return told.nonzero()[0]
