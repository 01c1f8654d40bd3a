"""The packet engine on real packets: what it does to them, for whom, and that it leaves nothing."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.local.burst import burst as send_burst
from harness.local.engine import key
from harness.local.lab import Lab
from harness.local.links import BadLinks
from harness.local.network import Cuts
from harness.local.post import Post
from harness.local.redirect import INTO, OUT_OF, Redirect
from harness.shape import Shape
from harness.site import Burst, Pair
from tests.inside import inside
from tests.live import until

pytestmark = pytest.mark.sandbox

AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
AC: Pair = ("a", "c")
LOST_S = 1.0  # what has not arrived by then is lost, where a shape loses packets
RATED, RATED_S = 168, 1.6  # packets: half as fast again as the rate, and its queue takes them
BOUND_S = 30.0  # for what must arrive: a busy machine is no finding


def run(test: Callable[[Lab, BadLinks, Cuts], Coroutine[Any, Any, Any]]) -> Any:
    lab = Lab(["a", "b", "c"], Path("/dev/shm/test"))
    links = BadLinks(lab.nodes, 1, Path("/dev/shm/links.log"))
    cuts = Cuts(lab.nodes, links.forget)
    assert links.unavailable() is None
    assert cuts.unavailable() is None
    return asyncio.run(test(lab, links, cuts))


async def burst(
    links: BadLinks, pair: Pair, count: int = 50, size: int = 64, lasts_s: float = 0.5
) -> Burst:
    """Send packets for so long that not all of them fall into a pause of this machine."""
    wait_s = LOST_S if links.shaped_now().get(pair, Shape()).loss else BOUND_S
    return (await links.measure([pair], count, size, lasts_s / count, wait_s))[pair]


def taken_in() -> int:
    """How many packets the engine was given so far, by the kernel's count."""
    (row,) = (r for r in Path("/proc/net/dev").read_text().splitlines() if "winkle-out" in r)
    return int(row.split(":")[1].split()[1])


async def hold(links: BadLinks, count: int, wait_s: float) -> "asyncio.Task[Burst]":
    """Send packets over a link that holds them back; return when all are held, and none arrived."""

    async def send() -> Burst:
        return (await links.measure([AB], count, 64, 0.0, wait_s))[AB]

    before = taken_in()
    sending = asyncio.create_task(send())
    await asyncio.sleep(0)  # it begins; the rest goes on in a thread
    until(lambda: taken_in() >= before + count, "the packets to be held")
    return sending


async def _each(_lab: Lab, links: BadLinks, _cuts: Cuts) -> dict[str, Any]:
    seen = {}
    for name, shape, count in (
        ("delay", Shape(delay_s=0.03), 50),
        ("loss", Shape(loss=0.2), 400),
        ("duplicate", Shape(duplicate=0.2), 400),
        ("reorder", Shape(reorder=0.2), 400),
        ("all", Shape(0.02, 0.01, 0.2, 0.2, 0.2), 400),
    ):
        await links.shape("x", [AB], shape)
        seen[name] = asdict(await burst(links, AB, count))
    await links.shape("x", [AB], Shape(rate_bytes_s=100_000))
    seen["rate"] = asdict(await burst(links, AB, RATED, 1400, RATED_S))
    seen["back"] = asdict(await burst(links, BA))
    seen["other"] = asdict(await burst(links, AC))
    await links.unshape("x")
    await links.unshape("x")
    return seen | {"after": asdict(await burst(links, AB))}


def each() -> Any:
    return run(_each)


def test_each_thing_happens_to_this_direction_of_this_link_and_ends() -> None:
    seen = inside(each)
    assert seen["delay"]["least_s"] >= 0.03
    assert 40 <= seen["loss"]["lost"] <= 130
    assert 40 <= seen["duplicate"]["doubled"] <= 130
    assert 20 <= seen["reorder"]["swapped"] <= 130
    assert seen["all"]["least_s"] >= 0.01
    assert min(seen["all"][name] for name in ("lost", "doubled", "swapped")) > 10
    assert 60_000 <= seen["rate"]["rate_bytes_s"] <= 130_000  # sent at 147,000
    for good in ("back", "other", "after"):
        assert seen[good]["least_s"] < 0.01
        assert [seen[good][name] for name in ("lost", "doubled", "swapped")] == [0, 0, 0]


async def _owners(_lab: Lab, links: BadLinks, _cuts: Cuts) -> list[float | None]:
    seen = []
    await links.shape("x", [AB], Shape(delay_s=0.05))
    await links.shape("y", [AB, AC], Shape(delay_s=0.1))
    seen.append((await burst(links, AB)).least_s)
    assert links.shaped_now() == {AB: Shape(delay_s=0.15000000000000002), AC: Shape(delay_s=0.1)}
    assert links.shaped_now(but="y") == {AB: Shape(delay_s=0.05)}
    await links.unshape("x")
    seen.append((await burst(links, AB)).least_s)
    await links.unshape("y")
    seen.append((await burst(links, AB)).least_s)
    return seen


def owners() -> Any:
    return run(_owners)


def test_what_several_owners_want_adds_up_and_each_takes_back_its_own() -> None:
    both, one, none = inside(owners)
    assert both >= 0.15
    assert 0.1 <= one < 0.15
    assert none < 0.05


async def _cut_through(_lab: Lab, links: BadLinks, cuts: Cuts) -> dict[str, Any]:
    """Cut a link that holds packets back: what is under way must not arrive either."""
    await links.shape("x", [AB, BA], Shape(delay_s=3.0))
    sending = await hold(links, 20, 3.5)
    await cuts.cut("y", [AB])
    under_way = await sending
    passed = await cuts.passes([AB], 3.1)
    await cuts.mend("y")
    again = await burst(links, AB)
    return {"lost": under_way.lost, "cut": passed[AB].nothing, "slow_s": again.least_s}


def cut_through() -> Any:
    return run(_cut_through)


def test_a_bad_link_does_not_bypass_a_cut() -> None:
    """Case C15: a delay that was there first let traffic through, or acted as a cut itself."""
    seen = inside(cut_through)
    assert seen["lost"] == 20
    assert seen["cut"]
    assert 3.0 <= seen["slow_s"] < 5.0


async def _released(_lab: Lab, links: BadLinks, _cuts: Cuts) -> dict[str, Any]:
    """Heal a link that holds packets back: they arrive at once."""
    await links.shape("x", [AB], Shape(delay_s=3600.0))
    sending = await hold(links, 20, BOUND_S)
    await links.unshape("x")
    return asdict(await sending)


def released() -> Any:
    return run(_released)


def test_what_is_held_arrives_when_the_link_is_good_again() -> None:
    seen = inside(released)
    assert seen["lost"] == 0
    assert seen["swapped"] == 0


async def _dead(_lab: Lab, links: BadLinks, _cuts: Cuts) -> str:
    assert links._engine is not None
    os.kill(links._engine.pid, signal.SIGKILL)
    links._engine.wait()
    with pytest.raises(HarnessError) as caught:
        await links.shape("x", [AB], Shape(loss=0.5))
    return str(caught.value)


def dead() -> Any:
    return run(_dead)


def test_an_engine_that_died_is_an_error_of_the_run() -> None:
    assert "the packet engine" in inside(dead)


def left_behind() -> list[Any]:
    """Take packets, be killed, and let another come: the kernel alone has them in the end."""
    lab = Lab(["a", "b"], Path("/dev/shm/test"))
    ports = [node.port for node in lab.nodes.values()]
    pair = key(lab["a"].address, lab["b"].address)
    Redirect(ports).take(pair, lab["b"].port)
    taken = burst_of(lab, 0.2).lost
    second = Redirect(ports)
    second.take(pair, lab["b"].port)
    second.close()
    names = [name for _, name in socket.if_nameindex()]
    return [taken, burst_of(lab, BOUND_S).lost, INTO in names or OUT_OF in names]


def burst_of(lab: Lab, wait_s: float) -> Burst:
    posts = {name: Post(node) for name, node in lab.nodes.items()}
    return send_burst(posts, [AB], 10, 64, 0.0, wait_s)[AB]


def test_what_a_killed_engine_has_left_is_taken_away() -> None:
    assert inside(left_behind) == [10, 0, False]


DATA = bytes(range(256)) * 8192  # two megabytes


async def _stream(lab: Lab, links: BadLinks, _cuts: Cuts) -> list[Any]:
    with lab["b"].inside():
        listener = socket.create_server((lab["b"].address, 0))
    with lab["a"].inside():
        client = socket.socket()
    for end in (listener, client):
        end.settimeout(30)

    def send() -> None:
        client.connect(listener.getsockname())
        client.sendall(DATA)
        client.close()

    def receive() -> bytes:
        stream, _ = listener.accept()
        with stream, stream.makefile("rb") as lines:
            return lines.read()

    shape = Shape(delay_s=0.001, loss=0.01, duplicate=0.05, reorder=0.05)
    await links.shape("x", [AB, BA], shape)
    received, _ = await asyncio.gather(asyncio.to_thread(receive), asyncio.to_thread(send))
    return [received == DATA]


def stream() -> Any:
    return run(_stream)


def test_tcp_still_carries_every_byte() -> None:
    """Large frames stay whole on their way through the engine, checksums included."""
    assert inside(stream) == [True]
