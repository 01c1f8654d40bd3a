"""Cuts in a real network: what they stop, judged by the test's own sockets; what undoes them."""

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cutting import Order
from harness.local import netfilter as nft
from harness.local import network
from harness.local.lab import Lab, LocalNode
from harness.local.netlink import Message
from harness.local.network import Cuts
from harness.site import Pair
from tests.inside import inside
from tests.live import until

pytestmark = pytest.mark.sandbox

AB: Pair = ("a", "b")
BA: Pair = ("b", "a")
CD: Pair = ("c", "d")
BOUND_S = 30.0  # for what must arrive: a busy machine is no finding
SILENCE_S = 0.3  # for what must not arrive


def lab_and_cuts() -> tuple[Lab, Cuts]:
    lab = Lab(["a", "b", "c", "d"], Path("/dev/shm/test"))
    for node in lab.nodes.values():
        node.sysctl("net.ipv4.tcp_rto_max_ms", "1000")
    cuts = Cuts(lab.nodes)
    assert cuts.unavailable() is None
    return lab, cuts


def run(test: Callable[[Lab, Cuts], Coroutine[Any, Any, Any]]) -> Any:
    lab, cuts = lab_and_cuts()
    return asyncio.run(test(lab, cuts))


def made_in(node: LocalNode, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    with node.inside():
        made = socket.socket(socket.AF_INET, kind)
    made.settimeout(BOUND_S)
    return made


class Wires:
    """The test's own sockets between two nodes: datagrams, and a connection."""

    def __init__(self, near: LocalNode, far: LocalNode) -> None:
        self.near, self.far = near, far
        self.sender, self.receiver = (made_in(node, socket.SOCK_DGRAM) for node in (near, far))
        self.receiver.bind((far.address, 0))
        self.listener = made_in(far)
        self.listener.bind((far.address, 0))
        self.listener.listen()
        self.client = made_in(near)
        self.client.connect(self.listener.getsockname())
        self.server, _ = self.listener.accept()

    def datagram(self, bound_s: float = BOUND_S) -> bool:
        self.sender.sendto(b"!", self.receiver.getsockname())
        return heard(self.receiver, bound_s)

    def byte(self, bound_s: float = BOUND_S) -> bool:
        self.client.send(b"!")
        return heard(self.server, bound_s)

    def connects(self, bound_s: float = BOUND_S) -> int:
        """Return 0, or the error with which a new connection fails."""
        with made_in(self.near) as fresh:
            fresh.settimeout(bound_s)
            try:
                fresh.connect(self.listener.getsockname())
            except TimeoutError:
                return errno.ETIMEDOUT
            except OSError as error:
                return error.errno or -1
        self.listener.accept()[0].close()
        return 0


def heard(receiver: socket.socket, bound_s: float) -> bool:
    receiver.settimeout(bound_s)
    try:
        return bool(receiver.recv(1))
    except TimeoutError:
        return False


async def _one_way(lab: Lab, cuts: Cuts) -> list[Any]:
    there, back = Wires(lab["a"], lab["b"]), Wires(lab["b"], lab["a"])
    other = Wires(lab["c"], lab["b"])
    seen: list[Any] = [there.datagram(), there.byte(), there.connects()]
    await cuts.cut("x", [AB])
    seen += [there.datagram(SILENCE_S), there.byte(SILENCE_S), there.connects(SILENCE_S)]
    seen += [back.datagram(), other.byte()]
    await cuts.mend("x")
    return [*seen, there.datagram(), heard(there.server, BOUND_S)]


def one_way() -> list[Any]:
    return list(run(_one_way))


def test_one_direction_is_cut_for_datagrams_old_and_new_connections_and_comes_back() -> None:
    seen = inside(one_way)
    assert seen[:3] == [True, True, 0]
    assert seen[3:6] == [False, False, errno.ETIMEDOUT]
    assert seen[6:8] == [True, True], "the way back, and others"
    assert seen[8:] == [True, True], "after the heal: a datagram, and the byte sent into the cut"


async def _owners(_lab: Lab, cuts: Cuts) -> list[bool]:
    async def passes() -> bool:
        return (await cuts.passes([AB]))[AB].whole

    seen = [await passes()]
    steps: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: cuts.cut("x", [AB, BA]),
        lambda: cuts.cut("y", [AB, CD]),
        lambda: cuts.mend("x"),
        lambda: cuts.mend("x"),
        lambda: cuts.cut("y", [AB]),
        lambda: cuts.mend("y"),
        lambda: cuts.mend("y"),
        lambda: cuts.cut("z", [AB]),
        lambda: cuts.cut("z", [CD]),
    ]
    for step in steps:
        await step()
        seen.append(await passes())
    assert cuts.cut_now() == {CD}
    return seen


def owners() -> list[bool]:
    return list(run(_owners))


def test_cuts_of_several_owners_add_up_and_each_is_removed_once_and_gone() -> None:
    """Case C18: the same pair cut twice, mended twice, in any order; and an order replaced."""
    assert inside(owners) == [True] + [False] * 5 + [True] * 2 + [False, True]


async def _refused(lab: Lab, cuts: Cuts) -> list[Any]:
    assert cuts.unavailable(reject=True) is None
    wires = Wires(lab["a"], lab["b"])
    await cuts.cut("x", [AB], reject=True)
    wires.client.send(b"!")
    try:
        wires.client.recv(1)
        seen: list[Any] = ["nothing"]
    except OSError as error:
        seen = [error.errno]
    seen.append(wires.connects())
    passed = (await cuts.passes([AB]))[AB]
    seen += [passed.nothing, passed.refused]
    await cuts.cut("silent", [AB])
    seen.append(wires.connects(SILENCE_S))
    await cuts.mend("silent")
    seen.append(wires.connects())
    await cuts.mend("x")
    return [*seen, wires.connects(), (await cuts.passes([AB]))[AB].whole]


def refused() -> list[Any]:
    return list(run(_refused))


def test_a_refusal_resets_old_connections_and_new_ones_and_silence_outdoes_it() -> None:
    seen = inside(refused)
    if isinstance(seen[0], str):
        pytest.skip(seen[0])
    refused_, timed_out = errno.ECONNREFUSED, errno.ETIMEDOUT
    assert seen[:4] == [errno.ECONNRESET, refused_, True, True]
    assert seen[4:6] == [timed_out, refused_]
    assert seen[6:] == [0, True]


async def _tampered(_lab: Lab, cuts: Cuts) -> list[Any]:
    await cuts.cut("x", [AB, BA])
    held = (await cuts.passes([AB]))[AB]
    rules = nft.Netfilter()
    keys = cuts._in_kernel[nft.BRIDGE]
    rules.commit(nft.delete_elements(nft.BRIDGE, network._CUT, network._SET, keys))
    leaked = (await cuts.passes([AB]))[AB]
    # Now a rule that stops datagrams only: connections go on.
    udp = [*nft.frame_type(nft.EQUAL, nft.IPV4), *nft.transport(b"\x11"), nft.drop()]
    rules.commit([nft.rule(nft.BRIDGE, network._CUT, network._CHAIN, *udp)])
    await cuts.cut("y", [CD])
    some = (await cuts.passes([CD]))[CD]
    rules.commit(nft.delete_elements(nft.BRIDGE, network._CUT, network._SET, [_key(cuts, CD)]))
    old = (await cuts.passes([CD]))[CD]
    return [held.nothing, leaked.datagram, leaked.new, some.nothing, old.datagram, old.new]


def _key(cuts: Cuts, pair: Pair) -> bytes:
    return cuts._ports[pair[0]] + cuts._ports[pair[1]]


def tampered() -> list[Any]:
    return list(run(_tampered))


def test_the_probe_sees_a_cut_whose_rules_somebody_took_away() -> None:
    """Case C15: what is ordered and what is so are two things, for datagrams and connections."""
    assert inside(tampered) == [True, True, True, True, False, True]


async def _old_leak(_lab: Lab, cuts: Cuts) -> list[Any]:
    """Let only what stood before pass: the rule comes when the connections are there."""
    await cuts.cut("x", [])
    link, prober = frozenset(AB), cuts._prober()
    await prober.prepare([link])
    while not prober._reserves[link].usable():  # a busy machine may not get it done in time
        await prober.prepare([link])
    cuts._orders = {"x": Order(frozenset([AB]), reject=False)}  # ordered, and not done
    passed = (await cuts.passes([AB]))[AB]
    return [passed.old, passed.new, passed.datagram]


def old_leak() -> list[Any]:
    return list(run(_old_leak))


def test_the_probe_sees_an_old_connection_that_goes_on() -> None:
    assert inside(old_leak) == [True, True, True]


async def _neighbours(lab: Lab, cuts: Cuts) -> list[Any]:
    """Connect to a neighbour that was never looked up, while it is cut off."""
    await cuts.cut("x", [("c", "d"), ("d", "c")])
    stream = made_in(lab["c"])
    stream.setblocking(False)
    assert stream.connect_ex((lab["d"].address, 9)) == errno.EINPROGRESS
    flags = until(lambda: known(lab["c"], lab["d"].address), "the neighbour to be looked up")
    return [*flags, stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


def known(node: LocalNode, address: str) -> list[str]:
    """Return the flags of a neighbour in a node's table, once its look-up is over: 0x2 is known."""
    with node.inside():
        rows = Path("/proc/thread-self/net/arp").read_text().splitlines()
    return [flags for row in rows if address in row and (flags := row.split()[2]) != "0x0"]


def neighbours() -> list[Any]:
    return list(run(_neighbours))


def test_a_cut_is_silent_also_for_a_neighbour_that_was_never_looked_up() -> None:
    """With the look-up cut the kernel would give up with EHOSTUNREACH after 3 s."""
    assert inside(neighbours) == ["0x2", 0]


async def _large(_lab: Lab, cuts: Cuts) -> list[Any]:
    names = list(cuts._nodes)
    everything = [(a, b) for a in names for b in names if a != b]
    changes = 0

    def commit(messages: Sequence[Message]) -> None:
        nonlocal changes
        changes += 1
        whole_commit(messages)

    assert cuts._netfilter is not None
    whole_commit, cuts._netfilter.commit = cuts._netfilter.commit, commit  # type: ignore[method-assign]
    await cuts.cut("x", everything)
    assert changes == 1
    passed = await cuts.passes(everything)
    counted = await cuts.stopped_packets()
    await cuts.mend("x")
    again = await cuts.passes(everything)
    return [
        all(passage.nothing for passage in passed.values()),
        counted >= len(everything),
        all(passage.whole for passage in again.values()),
    ]


def large() -> list[Any]:
    names = [f"n{i}" for i in range(20)]  # 380 pairs: the kernel keeps a thousand neighbours
    lab = Lab(names, Path("/dev/shm/test"))
    cuts = Cuts(lab.nodes)
    assert cuts.unavailable() is None
    return asyncio.run(_large(lab, cuts))


def test_a_partition_of_many_nodes_is_one_change() -> None:
    silent, counted, back = inside(large)
    assert [silent, counted, back] == [True, True, True]
