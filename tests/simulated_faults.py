"""Faults of the simulated world beside pauses: kills, cuts, and a lock server that is away.

Each begins now and ends by itself; what a correct lock does under them is in `tests.simulation`.
"""

from functools import partial

from harness.generator import Forgetful
from tests.simulation import S, Seat, World


def kill_worker(world: World) -> None:
    """Kill a contender; what it had open stays unknown, and it starts again with nothing."""
    seat = world.rnd.choice(world.seats[: world.spec.workers])
    if seat.dead:
        return
    length_ns = world.some_leases()
    world.window("kill", seat.name, world.now_ns + length_ns)
    for lane, step in (("main", seat.busy), ("renewal", seat.renewing)):
        if step is not None:
            world.record(seat, lane, "info", step, error="the worker: killed")
        else:
            seat.main += 2 * len(world.seats) * (lane == "main")
            seat.renewal += 2 * len(world.seats) * (lane == "renewal")
    if seat.grant is not None:
        key, token = seat.grant
        world.lose(seat)
        if world.sessions and world.locks[key].holds(token, world.now_ns):
            world.locks[key].until_ns = world.now_ns
    seat.busy = seat.renewing = None
    seat.dead, seat.life, seat.frozen_ns = True, seat.life + 1, 0
    world.at(world.now_ns + length_ns, partial(_start, world, seat))


def _start(world: World, seat: Seat) -> None:
    seat.dead = False
    going: object = seat.generator
    if isinstance(going, Forgetful):
        seat.generator = going.forget()
        world.advance(seat, None)


def cut_worker(world: World) -> None:
    """Cut a contender off from the lock; the register it still reaches."""
    seat = world.rnd.choice(world.seats[: world.spec.workers])
    seat.cut_ns = world.now_ns + world.some_leases()
    if world.bug == "no session" and seat.grant is not None:
        world.locks[seat.grant[0]].until_ns = world.now_ns
    pairs = [f"{seat.name}>lock1", f"lock1>{seat.name}"]
    world.window("partition", seat.name, seat.cut_ns, pairs)


def pause_lock(world: World) -> None:
    """Stop the lock server: what was sent to it is done when it goes on."""
    if world.now_ns < world.lock_away_ns:
        return
    world.lock_away_ns = world.now_ns + world.some_leases()
    world.window("pause", "lock1", world.lock_away_ns)


def restart_lock(world: World) -> None:
    """Kill the lock server; when it is back, leases that were not released begin anew."""
    if world.now_ns < world.lock_away_ns:
        return
    world.lock_away_ns = world.now_ns + world.some_leases()
    world.lock_down = True
    world.window("kill", "lock1", world.lock_away_ns)
    world.at(world.lock_away_ns, partial(_recover, world))


def _recover(world: World) -> None:
    world.lock_down = False
    for lock in world.locks.values():
        if not lock.released:
            lock.until_ns = world.now_ns + round(world.spec.ttl_s * S)


ALL = (kill_worker, cut_worker, pause_lock, restart_lock)
