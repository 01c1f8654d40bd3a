"""The objects of the random histories: what clients ask, what is answered, and lies."""

from typing import Any

from tests.checking_histories import Act, Made, Plan, World

MISSING = 99


def register_act(*, distinct: bool, cas: bool = False, tells: bool = True) -> Act:
    """A register; values are unique with `distinct`; a refused cas `tells` what it saw."""

    def act(world: World, plan: Plan, made: Made) -> None:
        rnd = world.rnd
        new = plan.number + 1 if distinct else rnd.randint(0, 3)
        f = rnd.choice(["read", "read", "write", "cas"] if cas else ["read", "write"])
        known = [*world.values, None if distinct else 0]
        made.f = f
        if f == "read":
            made.result = world.state
            if world.lies:
                made.result = rnd.choice(
                    [*known, *known, rnd.randint(1, world.shape.size), MISSING]
                )
        elif f == "write":
            made.value = world.state = new
            world.values.append(new)
            if world.chance(0.05):
                made.type, made.error = "fail", "no-effect: broken pipe"
        else:
            old = world.state if world.chance(0.6) else rnd.choice(known)
            made.value = [old, new]
            won = (old == world.state) != world.lies
            if won:
                world.state = new
                world.values.append(new)
            else:
                made.type = "fail"
                made.result = {"saw": world.state} if tells else None

    return act


def fenced_act(*, distinct: bool = True) -> Act:
    """A fenced register; reads may tell value, token or both, refusals the winning token."""

    def act(world: World, plan: Plan, made: Made) -> None:
        rnd = world.rnd
        highest, value = world.state
        if world.chance(0.45):
            made.f, made.result = "read", value
            made.told = highest if highest and world.chance(0.7) else None
            if world.lies:
                ahead = rnd.randint(1, world.shape.size)
                made.result = rnd.choice([*world.values, ahead, None, MISSING])
                made.told = rnd.choice([None, None, None, rnd.randint(1, 3)])
            if world.chance(0.15):
                made.result = None
                made.told = rnd.choice([None, 1, 2, 3]) if world.lies else (highest or None)
            return
        made.f = "write"
        made.value = plan.number + 1 if distinct else rnd.randint(1, 3)
        made.token = rnd.randint(0, 3)
        accepted = made.token >= highest
        if world.chance(0.04):
            made.type, made.error = "fail", "no-effect: broken pipe"
        elif accepted != world.lies:
            world.values.append(made.value)
        else:
            made.type, made.error = "fail", "fenced"
            made.told = highest if world.chance(0.4) else None
            if made.told is not None and world.lies:
                made.told = rnd.randint(0, 3)
        if accepted and made.type == "ok":
            world.state = (made.token, made.value)

    return act


def fence_act(*, keys: int, seals: float, distinct: bool = True) -> Act:
    """Keys that share a fence; a read tells the value with its token, or the highest token."""

    def act(world: World, plan: Plan, made: Made) -> None:
        rnd = world.rnd
        highest, *written = world.state
        made.key = f"k{rnd.randrange(keys)}"
        known = [entry[1:] for entry in written if entry[0] == made.key] or [(None, 0)]
        if world.chance(0.45):
            made.f, made.result = "read", known[0][0]
            made.told = known[0][1] if known[0][1] and world.chance(0.6) else None
            if world.lies:
                made.result = rnd.choice([*world.values, None, MISSING])
                made.told = rnd.choice([None, None, None, rnd.randint(1, 3)])
            if world.chance(0.15):
                made.result = None
                made.told = rnd.randint(1, 3) if world.lies else (highest or None)
            return
        made.f = "seal" if world.chance(seals) else "write"
        made.token = rnd.randint(0, 3)
        if made.f == "write":
            made.value = plan.number + 1 if distinct else rnd.randint(1, 2)
        accepted = made.token >= highest
        if accepted == world.lies:
            made.type, made.error = "fail", "fenced"
            if world.chance(0.4):
                made.told = rnd.randint(0, 3) if world.lies else highest
        elif made.f == "write":
            world.values.append(made.value)
        if accepted and made.type == "ok":
            if made.f == "write":
                written = [entry for entry in written if entry[0] != made.key]
                written.append((made.key, made.value, made.token))
            world.state = (made.token, *written)

    return act


def lock_act(*, expires: bool) -> Act:
    """A lock with tokens: acquire, renew, release; a client uses tokens that it was given."""

    def act(world: World, plan: Plan, made: Made) -> None:
        rnd = world.rnd
        held, highest = world.state
        mine = world.mine.setdefault(plan.client, [])
        made.process = world.process(plan)
        if expires and held is not None and world.chance(0.3):
            held = None
        f = "acquire" if not mine or world.chance(0.35) else rnd.choice(["renew", "release"])
        made.f = f
        if f == "acquire":
            if (held is None) != (world.lies and not plan.unknown):
                held = highest = highest + rnd.choice([1, 1, 2])
                made.told = held
                if world.lies:
                    made.told = rnd.randint(1, highest + 1)
                if not plan.unknown:
                    mine.append(made.told)
            else:
                made.type, made.error = "fail", "held"
            world.state = (held, highest)
            return
        made.token = rnd.choice(mine)
        if (held == made.token) == (world.lies and not plan.unknown):
            made.type, made.error = "fail", "not-holder"
        if f == "release" and held == made.token:
            held = None
        world.state = (held, highest)

    return act


def set_act(*, removes: bool = False) -> Act:
    """A set of elements."""

    def act(world: World, plan: Plan, made: Made) -> None:
        rnd = world.rnd
        made.f = rnd.choice(["add", "add", "read", "read", "remove"][: 5 if removes else 4])
        if made.f == "read":
            seen = set(world.state)
            if world.lies:
                seen ^= {rnd.choice([*world.values, MISSING])}
            made.result = sorted(seen)
            return
        made.value = rnd.randint(1, 3) if removes else plan.number + 1
        world.values.append(made.value)
        if world.chance(0.05):
            made.type, made.error = "fail", "no-effect: broken pipe"
        elif made.f == "add":
            world.state = world.state | {made.value}
        else:
            world.state = world.state - {made.value}

    return act


def queue_act(world: World, plan: Plan, made: Made) -> None:
    """A queue."""
    rnd = world.rnd
    made.f = rnd.choice(["enqueue", "dequeue"])
    if made.f == "enqueue":
        made.value = rnd.choice([plan.number + 1, rnd.randint(1, 2)])
        world.values.append(made.value)
        world.state = (*world.state, made.value)
        return
    made.result = world.state[0] if world.state else None
    world.state = world.state[1:]
    if world.lies:
        made.result = rnd.choice([*world.values, None, MISSING])


def append_act(world: World, plan: Plan, made: Made) -> None:
    """A text that grows."""
    rnd = world.rnd
    made.f = rnd.choice(["put", "append", "append", "get", "get"])
    if made.f == "get":
        made.result = world.state
        if world.lies:
            made.result = rnd.choice([*world.values, "", "z"])
        return
    made.value = rnd.choice("abc")
    world.state = made.value if made.f == "put" else world.state + made.value
    world.values.append(world.state)


def consensus_act(world: World, plan: Plan, made: Made) -> None:
    """One decision."""
    rnd = world.rnd
    made.f = rnd.choice(["propose", "propose", "decide"])
    if made.f == "propose":
        made.value = rnd.choice([plan.number + 1, rnd.randint(1, 2)])
        world.values.append(made.value)
        if world.chance(0.05):
            made.type = "fail"
            return
        world.state = made.value if world.state is None else world.state
    made.result = world.state
    if world.lies:
        made.result = rnd.choice([*world.values, None, MISSING])


def mutex_act(*, owners: bool, depth: int) -> Act:
    """A mutex; the state is (owner, depth)."""

    def act(world: World, plan: Plan, made: Made) -> None:
        owner, held = world.state
        me = world.process(plan)
        made.f = world.rnd.choice(["acquire", "release"])
        made.process = me
        if made.f == "acquire":
            free = not held or (held < depth and owner == me)
            after: Any = (me, held + 1)
        else:
            free = held > 0 and (owner == me or not owners)
            after = (owner if held > 1 else None, held - 1)
        if free != world.lies:
            world.state = after if free else world.state
            return
        made.type = "fail"
        made.error = "held" if made.f == "acquire" else "not-holder"

    return act


def semaphore_act(*, permits: int) -> Act:
    """A semaphore; the state is how many permits are free."""

    def act(world: World, plan: Plan, made: Made) -> None:
        made.f = world.rnd.choice(["acquire", "release"])
        change = -1 if made.f == "acquire" else 1
        possible = 0 <= world.state + change <= permits
        if possible != world.lies:
            world.state += change if possible else 0
            return
        made.type = "fail"
        made.error = "held" if made.f == "acquire" else "no-effect: none is taken"

    return act
