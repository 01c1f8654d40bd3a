"""Random small histories of every model, and a hypothesis strategy for them.

Clients talk to one atomic object; each call takes effect somewhere between its call and its
return, or, when its outcome is unknown, later or never.  Short spans of time give ties, some calls
are slow, and answers are falsified now and then, so that about half of the histories are illegal.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from harness.history import History
from harness.op import Op, OpType


@dataclass
class Made:
    """One call: what was asked and, unless `info`, what was answered."""

    call: int
    ret: int
    f: str
    key: str = "x"
    process: int = -1
    value: Any = None
    token: int | None = None
    type: OpType = "ok"
    result: Any = None
    told: int | None = None
    error: str | None = None


def history_of(calls: list[Made]) -> History:
    """Return the history of some calls; a call without a process gets one of its own."""
    events: list[tuple[int, int, int, Op]] = []
    for number, c in enumerate(calls):
        who = c.process if c.process >= 0 else 1000 + number
        asked = Op(
            process=who, type="invoke", f=c.f, key=c.key, value=c.value, token=c.token,
            time_ns=c.call,
        )  # fmt: skip
        events.append((c.call, 0, number, asked))
        if c.type != "info":
            done = Op(
                process=who, type=c.type, f=c.f, key=c.key, value=c.result, token=c.told,
                time_ns=c.ret, error=c.error,
            )  # fmt: skip
            events.append((c.ret, 1, number, done))
    events.sort(key=lambda event: event[:3])
    return History([op for *_, op in events])


@dataclass
class Shape:
    """How large and how wild a history is; `noise` is the share of false answers."""

    seed: int
    size: int
    clients: int
    crash: float
    noise: float
    keys: int = 1


@dataclass
class Plan:
    """When one call of one client happens; `effect` is None when it never takes effect."""

    number: int
    client: int
    call: int
    effect: int | None
    ret: int
    unknown: bool
    life: int


def plans(rnd: random.Random, shape: Shape) -> list[Plan]:
    """Return the calls of sequential clients in the order of their numbers."""
    span = rnd.choice([1, 2, 6])
    free, lives = [0] * shape.clients, [0] * shape.clients
    out = []
    for number in range(shape.size):
        client = rnd.randrange(shape.clients)
        call = free[client] + rnd.randint(0, 3)
        effect: int | None = call + rnd.randint(0, span)
        ret = call + rnd.randint(0, span)
        if rnd.random() < 0.15:  # a slow one
            ret = call + rnd.randint(0, span * shape.size)
        effect = rnd.randint(call, ret)
        unknown = rnd.random() < shape.crash
        if unknown:
            never = rnd.random() < 0.4
            effect = None if never else call + rnd.randint(0, span * shape.size)
            free[client] = call + 1
        else:
            free[client] = ret + rnd.randint(1, 2)
        out.append(Plan(number, client, call, effect, ret, unknown, lives[client]))
        lives[client] += unknown
    return out


@dataclass
class World:
    """The object and what its clients know while a history is simulated."""

    rnd: random.Random
    shape: Shape
    state: Any
    values: list[Any] = field(default_factory=list)
    mine: dict[int, list[int]] = field(default_factory=dict)
    key: int = 0

    def process(self, plan: "Plan") -> int:
        """Return the process of a client: a new one after each unknown outcome."""
        return (self.key * 100 + plan.life) * 10 + plan.client

    def chance(self, share: float) -> bool:
        """True with some probability."""
        return self.rnd.random() < share

    @property
    def lies(self) -> bool:
        """Whether this answer is to be falsified."""
        return self.chance(self.shape.noise)


Act = Callable[[World, Plan, Made], None]


def simulate(shape: Shape, start: Any, act: Act) -> list[Made]:
    """Return the calls of one history; `act` fills in what was asked and answered."""
    rnd = random.Random(shape.seed)  # noqa: S311 - a history, no secret
    calls: list[Made] = []
    for key in range(shape.keys):
        world = World(rnd, shape, start, key=key)
        todo = plans(rnd, shape)
        made = {p.number: Made(p.call, p.ret, "", key=f"k{key}", process=-1) for p in todo}
        for plan in sorted(
            todo, key=lambda p: (p.call if p.effect is None else p.effect, rnd.random())
        ):
            one = made[plan.number]
            before = world.state
            act(world, plan, one)
            if plan.unknown:
                one.type, one.result, one.told, one.error = "info", None, None, None
            if plan.effect is None:
                world.state = before
        calls += made.values()
    return [c for c in calls if c.f]


@st.composite
def shapes(draw: Callable[[st.SearchStrategy[Any]], Any], *, keys: int, most: int = 9) -> Shape:
    """Shapes of histories of many keys, each of them small."""
    return Shape(
        seed=draw(st.integers(0, 1 << 48)),
        size=draw(st.integers(1, most)),
        clients=draw(st.integers(1, 5)),
        crash=draw(st.sampled_from([0.0, 0.15, 0.4])),
        noise=draw(st.sampled_from([0.0, 0.05, 0.15, 0.4])),
        keys=keys,
    )
