"""What goes with a finding: a witness that is illegal on its own, and how much hangs on it.

The witness of a fast check is put to the search by itself; if something in it could still be
explained, neighbours are added until it cannot, and what is not needed is taken away again.  A
finding is robust when it holds although each `fail` is read as "nobody knows".  The earliest event
is the return after which no order exists; it is found by halving, since what explains a history
explains each of its beginnings.

All of that has a small budget of its own, for the finding stands without it: what could not be made
smaller within it stays as large as it was, and is called coarse.  The budget is one of work, so
that the same history has the same evidence on a busy machine.
"""

from dataclasses import dataclass, replace

import numpy as np

from harness.checking.columns import FAIL, INFO, NEVER, Columns
from harness.checking.engine import Judge
from harness.checking.finding import Finding
from harness.checking.model import SearchModel
from harness.checking.naming import name_search
from harness.checking.requests import Requests
from harness.checking.timeline import Action
from harness.checking.trials import Trials
from harness.checking.values import Ints

_WORK = 300_000.0
_GUARD_S = 10.0
"""Each of the three parts of the evidence: about half a second of a common machine, ten of any."""

_NEIGHBOURS = (8, 16, 32, 64, 128)
_REDUCED_ROWS = 400


@dataclass(frozen=True, slots=True)
class Support:
    """A finding with what goes with it; `coarse`: with more work its rows or its time may be less.

    `robust`: whether it holds although each `fail` is read as unknown, None when nobody can tell.
    """

    finding: Finding
    earliest_ns: int
    robust: bool | None
    coarse: bool


def support(judge: Judge, columns: Columns, finding: Finding, earliest_ns: int | None) -> Support:
    """Return a finding with its evidence; `earliest_ns` is known when a search made the finding."""
    trials = Trials(judge, _WORK, _GUARD_S)
    if earliest_ns is None:
        finding = complete(trials, columns, finding)
    else:
        finding, earliest_ns = seen_ahead(trials, columns, finding, earliest_ns)
        finding = reduce(trials, columns, finding, earliest_ns)
    coarse = trials.late
    mine = of_key(columns, finding.rows[-1])
    if earliest_ns is None:
        rows = np.array(finding.rows, np.int64)
        ended = columns.ret[rows][columns.outcome[rows] != INFO]
        known_ns = int(max(ended.max(initial=0), columns.call[rows].max()))
        trials = Trials(judge, _WORK, _GUARD_S)
        earliest_ns = earliest(trials, mine, known_ns)
        coarse |= trials.late
    robustly = robust(Trials(judge, _WORK, _GUARD_S), mine)
    return Support(finding, earliest_ns, robustly, coarse)


def illegal(trials: Trials, columns: Columns, rows: Ints) -> bool:
    """Whether the search finds no order of these rows alone."""
    return trials.search(columns, np.sort(rows)).illegal


def complete(trials: Trials, columns: Columns, finding: Finding) -> Finding:
    """Return the finding with rows that are illegal on their own; unchanged if none are found."""
    rows = np.array(finding.rows, np.int64)
    if trials.model.search is None or illegal(trials, columns, rows):
        return finding
    same = np.flatnonzero(columns.key == columns.key[rows[-1]])
    centre = int(np.searchsorted(same, rows[-1]))
    for reach in _NEIGHBOURS:
        near = same[max(0, centre - reach) : centre + reach]
        wider = np.union1d(rows, near)
        if illegal(trials, columns, wider):
            added = _needed(trials, columns, rows, wider)
            return _with(finding, added)
    return finding


def _needed(trials: Trials, columns: Columns, keep: Ints, rows: Ints) -> Ints:
    """Take away, one by one, the added rows without which the rest stays illegal."""
    for row in np.setdiff1d(rows, keep)[::-1]:
        if trials.late:
            break
        fewer = rows[rows != row]
        if illegal(trials, columns, fewer):
            rows = fewer
    return np.setdiff1d(rows, keep)


def seen_ahead(
    trials: Trials, columns: Columns, finding: Finding, until_ns: int
) -> tuple[Finding, int]:
    """Return a finding of the operation that no order explains, and when that returned.

    A search that looks ahead gives up before it, at an operation that is innocent.
    """
    mine = of_key(columns, finding.rows[-1])
    if trials.judge(beginning(mine, until_ns)).illegal or trials.late:
        return finding, until_ns
    returns = mine.ret[mine.ret < NEVER]
    until_ns = earliest(trials, mine, int(returns.max()))
    rows = np.flatnonzero(columns.key == columns.key[finding.rows[-1]])
    blamed = int(rows[np.flatnonzero(mine.ret == until_ns)[0]])
    return name_search(columns, rows, blamed, trials.options.initial), until_ns


def reduce(trials: Trials, columns: Columns, finding: Finding, until_ns: int) -> Finding:
    """Return the finding of a search with rows that are illegal on their own, few if possible.

    Only rows without which a legal history stays legal are taken away: those that cannot change the
    state, and those whose result nothing that stays asks for.
    """
    blamed = finding.rows[-1]
    mine = (columns.key == columns.key[blamed]) & (columns.call <= until_ns)
    rows = np.union1d(np.flatnonzero(mine), finding.rows)
    if len(rows) > _REDUCED_ROWS or not illegal(trials, columns, rows):
        return finding
    chunk = max(1, len(rows) // 2)
    while True:
        for start in range(0, len(rows), chunk):
            if trials.late:
                break
            part = rows[start : start + chunk]
            part = part[~np.isin(part, finding.rows)]
            fewer = np.setdiff1d(rows, _free(trials, columns, rows, part))
            if len(fewer) < len(rows) and illegal(trials, columns, fewer):
                rows = fewer
        if chunk == 1 or trials.late:
            return _with(finding, np.setdiff1d(rows, finding.rows))
        chunk //= 2


def _free(trials: Trials, columns: Columns, rows: Ints, part: Ints) -> Ints:
    """Return which rows of a part may be taken away without making a legal history illegal."""
    assert trials.model.search is not None
    model = trials.model.search(trials.options)
    actions = {a.row: a for a in Requests(columns, model, rows).actions()}
    inside = set(part.tolist())
    wanted: set[object] = set()
    everything = False
    for row, action in actions.items():
        if row not in inside:
            wants = model.wants(action.kind)
            everything |= wants is None
            wanted.update(wants or ())
    free = [r for r in inside if _is_free(model, actions.get(r), None if everything else wanted)]
    return np.array(free, np.int64)


def _is_free(model: SearchModel, action: Action | None, wanted: set[object] | None) -> bool:
    if action is None or action.passive:
        return True
    made = model.gives(action.kind)
    return made is not None and wanted is not None and made not in wanted


def _with(finding: Finding, added: Ints) -> Finding:
    """Put the added rows between those of the sentence and the last one; renumber the sentence."""
    last = len(finding.rows) - 1
    more = tuple(int(row) for row in added)
    rows = (*finding.rows[:-1], *more, finding.rows[-1])
    template = finding.template.replace(f"{{{last}}}", f"{{{last + len(more)}}}")
    return replace(finding, rows=rows, template=template)


def of_key(columns: Columns, row: int) -> Columns:
    """Return the columns of the row's key only: what the other keys did proves nothing about it."""
    return columns.take(columns.key == columns.key[row])


def robust(trials: Trials, columns: Columns) -> bool | None:
    """Whether something is wrong although each `fail` is read as unknown; None: budget ended."""
    failed = columns.outcome == FAIL
    if not failed.any():
        return True
    doubted = replace(
        columns,
        outcome=np.where(failed, INFO, columns.outcome),
        ret=np.where(failed, NEVER, columns.ret),
    )
    judged = trials.judge(doubted)
    return True if judged.illegal else (None if judged.limits else False)


def earliest(trials: Trials, columns: Columns, until_ns: int) -> int:
    """Return the time of the first return after which no order exists, `until_ns` at the latest.

    `until_ns` is a time by which none exists.  Long histories are halved only near that time, and
    when the work is done the best known time has to do.
    """
    returns = np.unique(columns.ret[columns.ret <= until_ns])
    if not len(returns):
        return until_ns
    low, high, step = -1, len(returns) - 1, 1
    while high - low > 1 and step <= len(returns) and not trials.late:
        probe = max(low + 1, high - step)
        if not trials.judge(beginning(columns, int(returns[probe]))).illegal:
            low = probe
            break
        high = probe
        step *= 2
    while high - low > 1 and not trials.late:
        middle = (low + high) // 2
        if not trials.judge(beginning(columns, int(returns[middle]))).illegal:
            low = middle
        else:
            high = middle
    return int(returns[high])


def beginning(columns: Columns, until_ns: int) -> Columns:
    """Return the history up to a time: what is then open is of unknown outcome."""
    begun = columns.take(columns.call <= until_ns)
    is_open = begun.ret > until_ns
    return replace(
        begun,
        outcome=np.where(is_open, INFO, begun.outcome),
        ret=np.where(is_open, NEVER, begun.ret),
    )
