"""Bad links between real hosts: what happens to which packets, and that no host stays hindered."""

import asyncio
import os
import signal
import socket
import struct
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.local.netlink import parse
from harness.shape import Shape
from harness.site import Burst, Pair
from harness.ssh.agent.packets import Queue
from harness.ssh.lab import SshLab
from tests.inside import inside
from tests.live import slay, stretched, until
from tests.support_hosts import Hosts, agents, hosts, needs_sshd
from tests.test_ssh_cuts import lab

pytestmark = [pytest.mark.ssh, needs_sshd]

AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
AC: Pair = ("a", "c")
LOST_S = 1.0
NEARLY = 0.8  # the clocks of two hosts are compared
RATED, RATED_S = 168, 1.6  # packets: half as fast again as the rate, and its queue takes them
BOUND_S = 30.0  # for what must arrive: a busy machine is no finding
_LEASE_S = 3.0
_HELD_S = 3.0  # on its way so long: a cut takes an order, and a second of looks
SHAPES = {
    "delay": Shape(delay_s=0.03),
    "loss": Shape(loss=0.2),
    "duplicate": Shape(duplicate=0.2),
    "reorder": Shape(reorder=0.2),
    "all": Shape(0.02, 0.01, 0.2, 0.2, 0.2),
}


async def burst(
    place: SshLab, pair: Pair, count: int = 50, size: int = 64, lasts_s: float = 0.5
) -> Burst:
    """Send packets for so long that not all of them fall into a pause of this machine."""
    loses = place.links.shaped_now().get(pair, Shape()).loss > 0
    wait_s = LOST_S if loses else BOUND_S
    return (await place.links.measure([pair], count, size, lasts_s / count, wait_s))[pair]


def three_hosts() -> dict[str, Any]:
    with hosts(3) as made:
        place = lab(made, h1=["a"], h2=["b"], h3=["c"])
        try:
            assert place.links.unavailable() is None
            assert place.network.unavailable() is None
            return asyncio.run(_each(place, made))
        finally:
            place.close()


async def _each(place: SshLab, made: Hosts) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        await place.links.shape("x", [AB], shape)
        seen[name] = asdict(await burst(place, AB, 50 if name == "delay" else 400))
    await place.links.shape("x", [AB], Shape(rate_bytes_s=100_000))
    seen["rate"] = asdict(await burst(place, AB, RATED, 1400, RATED_S))
    seen["back"] = asdict(await burst(place, BA))
    seen["other"] = asdict(await burst(place, AC))
    seen["rules"] = made.nft("h1", "list", "ruleset")
    await place.links.shape("x", [AB], Shape(delay_s=_HELD_S))
    before = handed_over(made)
    late = asyncio.create_task(place.links.measure([AB], 5, 64, 0.0, _HELD_S + LOST_S))
    await asyncio.to_thread(until, lambda: handed_over(made) >= before + 5, "packets to be held")
    await place.network.cut("c", [AB])  # what is on its way is lost
    await place.network.mend("c")
    seen["cut"] = asdict((await late)[AB])
    await place.links.unshape("x")
    seen["large"] = await _large(place, made)
    seen["after"] = asdict(await burst(place, AB))
    return seen


def handed_over(made: Hosts) -> int:
    """How many packets the agent was given so far, by the kernel's count."""
    with made.place("h1").inside():
        rows = Path("/proc/thread-self/net/netfilter/nfnetlink_queue").read_text().splitlines()
    return sum(int(row.split()[7]) for row in rows)


async def _large(place: SshLab, made: Hosts) -> tuple[int, float]:
    """Send a datagram that needs several frames over a slow link: it comes whole, and late."""
    await place.links.shape("x", [AB], Shape(delay_s=0.2))
    with made.place("h2").inside():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with made.place("h1").inside():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind((made.place("h2").address, 0))
        receiver.settimeout(BOUND_S)
        sent_s = time.monotonic()
        sender.sendto(b"x" * 5000, receiver.getsockname())
        data = await asyncio.to_thread(receiver.recv, 9000)
        took_s = time.monotonic() - sent_s
    await place.links.unshape("x")
    return len(data), took_s


def test_each_thing_happens_to_this_direction_of_this_link_and_ends() -> None:
    seen = inside(three_hosts)
    assert seen["delay"]["least_s"] >= NEARLY * SHAPES["delay"].delay_s
    assert 40 <= seen["loss"]["lost"] <= 130
    assert 40 <= seen["duplicate"]["doubled"] <= 130
    assert 20 <= seen["reorder"]["swapped"] <= 130
    assert seen["all"]["least_s"] >= NEARLY * (0.02 - 0.01)
    assert min(seen["all"][name] for name in ("lost", "doubled", "swapped")) > 10
    assert 60_000 <= seen["rate"]["rate_bytes_s"] <= 130_000  # sent at 147,000
    assert "10.77.0.12 timeout 5s" in seen["rules"]
    assert "bypass" in seen["rules"]
    assert seen["large"][0] == 5000
    assert seen["large"][1] >= 0.2
    assert seen["cut"]["lost"] == 5
    for good in ("back", "other", "after"):
        assert seen[good]["least_s"] < 0.01
        assert [seen[good][name] for name in ("lost", "doubled", "swapped")] == [0, 0, 0]


def frozen_and_killed() -> dict[str, Any]:
    """Freeze an agent while its links lose everything, then kill it outright."""
    with hosts(2) as made:
        place = lab(made, _LEASE_S, h1=["a"], h2=["b"])
        try:
            assert place.links.unavailable() is None
            asyncio.run(place.links.shape("x", [AB], Shape(loss=1.0)))
            found: dict[str, Any] = {"lost": _passes(made)}
            (guard, *inner) = agents(made.place("h1"))
            for pid in inner:
                os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
            until(lambda: _passes(made), "the kernel to let packets by")
            found["limit_s"] = time.monotonic() - began
            slay(guard, *inner)
            found["after"] = _passes(made)
            return found
        finally:
            place.close()


def _passes(made: Hosts) -> bool:
    """Whether a datagram passes from the first host to the second."""
    with made.place("h2").inside():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with made.place("h1").inside():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind((made.place("h2").address, 0))
        receiver.settimeout(0.2)
        sender.sendto(b"x", receiver.getsockname())
        try:
            return receiver.recv(9) == b"x"
        except TimeoutError:
            return False


def test_the_kernel_lets_packets_by_when_nobody_decides_about_them() -> None:
    found = inside(frozen_and_killed)
    assert found["lost"] is False
    assert found["limit_s"] < _LEASE_S + stretched(2.0)
    assert found["after"] is True


def shared() -> list[str]:
    with hosts(2) as made:
        made.add({"name": "here", "local": True, "address": "10.77.0.1", "nodes": ["c"]})
        made.write(h1={"nodes": ["a", "d"]}, h2={"nodes": ["b"]})
        place = SshLab(["a", "b", "c", "d"], [], made.inventory, "t")

        async def refused(pair: Pair) -> str:
            try:
                await place.links.shape("x", [pair], Shape(loss=1.0))
            except OSError as error:
                return str(error)
            return "shaped"

        async def main() -> list[str]:
            said = [await refused(AB), await refused(("b", "c"))]
            return [*said, str(dict(place.links.shaped_now()))]

        try:
            return asyncio.run(main())
        finally:
            place.close()


def test_links_of_a_shared_host_and_of_the_controllers_are_left_alone() -> None:
    shares, controller, left = inside(shared)
    assert shares.startswith("a shares the host h1 with d: ")
    assert controller.startswith("c lives on the controller's machine, ")
    assert left == "{}"


def test_the_rule_of_newer_kernels_is_what_nft_itself_says() -> None:
    """The bytes of `queue num N bypass` in linux/netfilter/nf_tables.h: number, total, flags."""
    queue = Queue.__new__(Queue)
    queue.number = 258
    new, _old = queue.expressions()
    ((_, expression),) = parse(new)
    parts = dict(parse(expression))
    assert parts[1] == b"queue\0"
    assert dict(parse(parts[2])) == {
        1: struct.pack(">H", 258),
        2: struct.pack(">H", 1),
        3: struct.pack(">H", 1),
    }
