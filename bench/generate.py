"""Seeded histories with a known truth: ten clients talk to one atomic server.

Every operation is called, takes effect after a random delay and returns after another one, so the
history is linearizable unless a fault is put in.  A share of the operations never returns; half of
those never reach the server, the others arrive soon or very late.  The same seed gives the same
history.  Rows are `process, key, kind, token, old, new, seen, call, ret, outcome`; an outcome is 0
(ok), 1 (unknown) or 2 (refused).
"""

import heapq
import random
from dataclasses import dataclass, field

import numpy as np

from harness.checking.columns import FAIL, INFO, NEVER, NO_TOKEN, OK, Columns
from harness.checking.values import NOT_TOLD, Names, Values

READ, WRITE, CAS, ACQUIRE, RELEASE = 0, 1, 2, 3, 4
KINDS = ("read", "write", "cas", "acquire", "release")
DONE, UNKNOWN, REFUSED = 0, 1, 2
CALL, EFFECT, RETURN = 0, 1, 2
MEAN_NS = 1_000_000
ERRORS = (None, "fenced", "held", "not-holder")


@dataclass(frozen=True)
class Wanted:
    """What to generate; `values` > 0 draws written values from so few instead of unique ones."""

    model: str
    operations: int
    crash: float = 0.0
    keys: int = 1
    fault: str = "none"
    values: int = 0
    seed: int = 7
    clients: int = 10

    @property
    def name(self) -> str:
        """The name of the file."""
        keys = "one" if self.keys == 1 else "many"
        return f"{self.model}-{self.operations}-{self.crash:g}-{keys}-{self.fault}"


Row = list[int]


@dataclass
class Server:
    """The object of every key, and what clients know of it."""

    wanted: Wanted
    rnd: random.Random
    value: dict[int, int] = field(default_factory=dict)
    token: dict[int, int] = field(default_factory=dict)
    issued: dict[int, int] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)
    held: dict[tuple[int, int], int] = field(default_factory=dict)
    seen: dict[tuple[int, int], int] = field(default_factory=dict)
    fresh: int = 0

    def new(self) -> int:
        """A value that was never written, or one of a few."""
        self.fresh += 1
        return self.rnd.randint(1, self.wanted.values) if self.wanted.values else self.fresh

    def ask(self, slot: int, key: int) -> Row:
        """What a client asks: kind, token, old, new."""
        model, rnd, me = self.wanted.model, self.rnd, (slot, key)
        if model == "lock":
            mine = self.held.get(me, 0)
            return [RELEASE, mine, 0, 0] if mine else [ACQUIRE, 0, 0, 0]
        if rnd.random() < 0.5:
            return [READ, 0, 0, 0]
        if model == "cas" and rnd.random() < 0.5:
            return [CAS, 0, self.seen.get(me, 0), self.new()]
        token = 0
        if model == "fenced":
            self.writes[key] = self.writes.get(key, 0) + 1
            if self.writes[key] >= 20 or not self.issued.get(key):
                self.writes[key] = 0
                self.issued[key] = self.issued.get(key, 0) + 1 + (rnd.random() < 0.2)
                self.held[me] = self.issued[key]
            elif rnd.random() < 0.05 or me not in self.held:
                self.held[me] = self.issued[key]
            token = self.held[me]
        return [WRITE, token, 0, self.new()]

    def act(self, row: Row) -> int:
        """Take effect on a row (token and seen are filled in); return the outcome."""
        key, kind = row[1], row[2]
        value, token = self.value.get(key, 0), self.token.get(key, 0)
        if kind == READ:
            row[6], row[3] = value, token if self.wanted.model == "fenced" else 0
        elif kind == WRITE:
            if row[3] < token:
                return REFUSED
            self.value[key], self.token[key] = row[5], row[3]
        elif kind == CAS:
            row[6] = value
            if value != row[4]:
                return REFUSED
            self.value[key] = row[5]
        elif kind == ACQUIRE:
            if value:
                return REFUSED
            self.issued[key] = self.issued.get(key, 0) + 1
            self.value[key] = row[3] = self.issued[key]
        else:
            if value != row[3]:
                return REFUSED
            self.value[key] = 0
        return DONE


def rows_of(wanted: Wanted) -> list[Row]:
    """Return the rows of a history in the order of their calls."""
    rnd = random.Random(wanted.seed)  # noqa: S311 - a history, no secret
    server = Server(wanted, rnd)
    rows: list[Row] = []
    process, following = list(range(wanted.clients)), wanted.clients
    heap = [(rnd.randrange(MEAN_NS), c, CALL, c, -1) for c in range(wanted.clients)]
    heapq.heapify(heap)
    count = wanted.clients

    def push(when: int, what: int, slot: int, at: int) -> None:
        nonlocal count
        heapq.heappush(heap, (when, count, what, slot, at))
        count += 1

    def later(means: float = 1.0) -> int:
        return 1 + int(rnd.expovariate(1.0) * MEAN_NS * means)

    while heap:
        now, _, what, slot, at = heapq.heappop(heap)
        if what == CALL and len(rows) < wanted.operations:
            key = rnd.randrange(wanted.keys)
            rows.append([process[slot], key, *server.ask(slot, key), 0, now, -1, UNKNOWN])
            if rnd.random() >= wanted.crash:
                push(now + later(), EFFECT, slot, len(rows) - 1)
                continue
            fate = rnd.random()
            if fate < 0.5:
                delay = later() if fate < 0.25 else 1 + rnd.randrange(400 * MEAN_NS)
                push(now + delay, EFFECT, -1, len(rows) - 1)
            process[slot], following = following, following + 1
            server.held.pop((slot, key), None)
            push(now + later(5), CALL, slot, -1)
        elif what == EFFECT:
            _take_effect(server, rows[at], slot)
            if slot >= 0:
                push(now + later(), RETURN, slot, at)
        elif what == RETURN:
            rows[at][8] = now
            push(now + later(0.2), CALL, slot, -1)
    return rows


def _take_effect(server: Server, row: Row, slot: int) -> None:
    outcome = server.act(row)
    if slot < 0:  # nobody is told, and a lost grant ends by itself
        row[6] = 0
        if row[2] == ACQUIRE and outcome == DONE:
            server.value[row[1]] = row[3] = 0
        elif row[2] == READ:
            row[3] = 0
        return
    row[9] = outcome
    me = (slot, row[1])
    server.seen[me] = server.value.get(row[1], 0)
    if row[2] == ACQUIRE and outcome == DONE:
        server.held[me] = row[3]
    elif row[2] == RELEASE:
        server.held.pop(me, None)
    elif row[2] == WRITE and outcome == REFUSED and server.rnd.random() < 0.3:
        server.held[me] = server.issued[row[1]]


def put_in_fault(rows: list[Row], fault: str) -> None:
    """Make one answer in the middle wrong: `stale` a read, `accept` a refused write."""
    for at in range(len(rows) // 2, len(rows)):
        row = rows[at]
        before = [
            r
            for r in rows[max(0, at - 4000) : at]
            if r[1] == row[1] and r[2] == WRITE and r[9] == DONE and r[8] < row[7]
        ]
        if fault == "accept" and row[2] == WRITE and row[9] == REFUSED:
            if any(r[3] > row[3] for r in before):
                row[9] = DONE
                return
        elif fault == "stale" and row[2] == READ and row[9] == DONE and before:
            newer = max(before, key=lambda r: r[8])
            older = [r for r in before if r[8] < newer[7]]
            if older:
                row[6] = max(older, key=lambda r: r[8])[5]
                return
    raise ValueError(f"no place for the fault {fault}")


def history(wanted: Wanted) -> list[Row]:
    """Return the rows of a history, its fault included."""
    rows = rows_of(wanted)
    if wanted.fault != "none":
        put_in_fault(rows, wanted.fault)
    return rows


def files() -> list[Wanted]:
    """The 120 histories that are compared with Porcupine."""
    out = []
    for operations in (1_000, 10_000, 100_000, 1_000_000):
        for crash in (0.0, 0.01, 0.1):
            for model, many, fault in (
                ("register", True, "stale"),
                ("fenced", True, "accept"),
                ("cas", False, "stale"),
            ):
                for keys in (1, max(10, operations // 500))[: 2 if many else 1]:
                    out += [Wanted(model, operations, crash, keys, f) for f in ("none", fault)]
    return out


def columns_of(rows: list[Row]) -> Columns:
    """Return the columns of some rows; value ids are the values plus one, 0 is null."""
    table = np.array(rows, np.int64).reshape(-1, 10)
    process, key, kind, token, old, new, seen, call, ret, outcome = table.T.copy()
    top = int(max(new.max(initial=0), old.max(initial=0), seen.max(initial=0)))
    known = Values()
    known.ids(range(top + 1))
    done, refused = outcome == DONE, outcome == REFUSED
    writes = (kind == WRITE) | (kind == CAS)
    answers = ((kind == READ) & done) | ((kind == CAS) & refused)
    asked = (kind == WRITE) | (kind == RELEASE)
    told = done & ((kind == ACQUIRE) | ((kind == READ) & (token > 0)))
    word = np.select([kind == WRITE, kind == ACQUIRE, kind == RELEASE], [1, 2, 3], 0)
    number = np.arange(len(table), dtype=np.int64)
    return Columns(
        index=2 * number,
        ret_index=np.where(outcome == UNKNOWN, -1, 2 * number + 1),
        call=call,
        ret=np.where(outcome == UNKNOWN, NEVER, ret),
        process=process,
        kind=kind,
        key=key,
        value=np.where(writes, new + 1, NOT_TOLD),
        expected=np.where(kind == CAS, old + 1, NOT_TOLD),
        result=np.where(answers, seen + 1, np.where(kind == CAS, NOT_TOLD, 0)),
        token=np.where(asked & (token > 0), token, NO_TOKEN),
        result_token=np.where(told, token, NO_TOKEN),
        outcome=np.select([done, refused], [OK, FAIL], INFO).astype(np.int64),
        error=np.where(refused, word, 0),
        processes=Names(range(int(process.max(initial=0)) + 1)),
        kinds=Names(KINDS),
        keys=Names([f"k{i}" for i in range(int(key.max(initial=0)) + 1)]),
        errors=Names(ERRORS),
        values=known,
        events=2 * len(table),
    )


def rows_of_columns(columns: Columns) -> list[Row]:
    """Return the rows of a register history; values are their ids, of which null is 0."""
    numbers = columns.kinds_as({"read": READ, "write": WRITE, "cas": CAS}, READ)
    outcomes = {OK: DONE, INFO: UNKNOWN, FAIL: REFUSED}
    rows = []
    for row in range(len(columns)):
        kind, outcome = int(numbers[row]), outcomes[int(columns.outcome[row])]
        outcome = UNKNOWN if kind == READ and outcome == REFUSED else outcome
        ret = -1 if outcome == UNKNOWN else int(columns.ret[row])
        values = (columns.expected[row], columns.value[row])
        old, new = (max(0, int(value)) for value in values)
        seen = NOT_TOLD if kind == CAS else max(0, int(columns.result[row]))
        about = [int(columns.process[row]), int(columns.key[row]), kind, 0, old, new, seen]
        rows.append([*about, int(columns.call[row]), ret, outcome])
    return rows
