"""Cuts between real hosts: directed, proven by packets, never the controller's own connection."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from harness.site import Pair, Passage
from harness.ssh.lab import SshLab
from harness.ssh.station import LEASE_S
from tests.inside import inside
from tests.live import until
from tests.support_hosts import Hosts, hosts, needs_sshd

pytestmark = [pytest.mark.ssh, needs_sshd]

_CONTROLLER = "10.77.0.1"
_LEASE_S = 3.0
GIVEN_UP_S = 15.0  # long before TCP itself gives up; after a stall the silence counts anew
ALL: list[Pair] = [(a, b) for a in ("a", "b", "c") for b in ("a", "b", "c") if a != b]


def lab(made: Hosts, lease_s: float = LEASE_S, **nodes: list[str]) -> SshLab:
    """Nodes on hosts; a host without nodes takes no part."""
    made.write(**{host: {"nodes": names} for host, names in nodes.items()})
    servers = sorted(name for names in nodes.values() for name in names)
    return SshLab(servers, [], made.inventory, "t", lease_s)


def told(passages: Any) -> dict[str, str]:
    """Return for each pair a letter for whether datagram, old and new connection got through."""
    return {"".join(pair): "".join(map(_letter, _three(p))) for pair, p in passages.items()}


def _three(passage: Passage) -> tuple[bool | None, ...]:
    return passage.datagram, passage.old, passage.new


def _letter(passed: bool | None) -> str:
    return "?" if passed is None else "y" if passed else "n"


def three_hosts() -> dict[str, Any]:
    with hosts(3) as made:
        place = lab(made, h1=["a"], h2=["b"], h3=["c"])
        try:
            assert place.network.unavailable() is None
            return asyncio.run(_cut_and_mend(place, made))
        finally:
            place.close()


async def _cut_and_mend(place: SshLab, made: Hosts) -> dict[str, Any]:
    cuts = place.network
    found: dict[str, Any] = {}
    found["before"] = told(await cuts.passes(ALL))
    began = time.monotonic()
    await cuts.cut("one", [("a", "b")])
    found["call_ms"] = (time.monotonic() - began) * 1000
    found["one way"] = told(await cuts.passes(ALL))
    await cuts.cut("two", [("a", "b"), ("b", "a"), ("c", "a")])
    await cuts.mend("one")
    found["both"] = told(await cuts.passes(ALL))
    found["now"] = sorted("".join(pair) for pair in cuts.cut_now())
    found["packets"] = await cuts.stopped_packets()
    found["rules"] = made.nft("h2", "list", "ruleset")
    await cuts.mend("two")
    found["after"] = told(await cuts.passes(ALL))
    found["since"] = sorted("".join(pair) for pair in cuts.cut_since(began))
    return found


def test_a_cut_is_directed_adds_up_and_mends() -> None:
    found = inside(three_hosts)
    assert set(found["before"].values()) == {"y?y"}
    whole = dict.fromkeys(("ac", "ca", "bc", "cb"), "y?y")
    assert found["one way"] == {"ab": "nnn", "ba": "y??", **whole}
    assert found["both"] == {
        "ab": "nnn",
        "ba": "nnn",
        "ca": "nnn",
        "ac": "y??",
        "bc": "y?y",
        "cb": "y?y",
    }
    assert found["now"] == found["since"] == ["ab", "ba", "ca"]
    assert found["packets"] > 0
    assert "10.77.0.11 timeout 5s" in found["rules"]
    # The reserves of all links that were cut were opened before, and carry on.
    assert found["after"] == {
        "ab": "yyy",
        "ba": "yyy",
        "ca": "yyy",
        "ac": "yyy",
        **dict.fromkeys(("bc", "cb"), "y?y"),
    }
    assert found["call_ms"] < 10_000


def the_controller() -> dict[str, Any]:
    """Cut a host off from the controller's address; then freeze its agent, so nobody renews."""
    with hosts(1) as made:
        place = lab(made, _LEASE_S, h1=["a"])
        node = place.nodes["a"]
        link = node.station.link
        found: dict[str, Any] = {"alone": place.network.unavailable()}
        try:
            link.ask("cut", addresses=[_CONTROLLER])
            port = link.ask("post", address=node.address)[1]
            found["other port"] = _reached(node.address, port)
            time.sleep(1.5 * _LEASE_S)  # what nobody renews would have passed by now
            found["answers"] = link.ask("can_cut") == ""
            found["still cut"] = _reached(node.address, port)
            host = made.place("h1")
            host.stop("test")
            frozen = time.monotonic()
            until(
                lambda: f"{_CONTROLLER} timeout" not in made.nft("h1", "list", "ruleset"),
                "the limit",
            )
            found["limit_s"] = time.monotonic() - frozen
            until(lambda: link.lost, "the host to be given up")
            found["lost_s"] = time.monotonic() - frozen
            found["lost"] = link.lost
            host.resume("test")
            until(lambda: len(host.processes()) == 2, "the agent to end when it goes on")
            found["rules"] = made.nft("h1", "list", "ruleset")
        finally:
            place.close()
        return found


def _reached(address: str, port: int) -> str:
    import socket

    with contextlib.closing(socket.socket()) as stream:
        stream.settimeout(0.5)
        try:
            stream.connect((address, port))
        except TimeoutError:
            return "silent"
        return "accepted"


def test_the_controller_is_let_in_and_the_kernel_ends_what_nobody_renews() -> None:
    found = inside(the_controller)
    assert found["alone"] is None
    assert found["other port"] == found["still cut"] == "silent"
    assert found["answers"]
    assert 1.0 < found["limit_s"] < GIVEN_UP_S
    assert _LEASE_S - 1 < found["lost_s"] < GIVEN_UP_S
    assert "host h1: nothing was heard of it for 3." in found["lost"]
    assert "it is cut off or frozen" in found["lost"]
    assert found["rules"] == ""


def shared() -> dict[str, Any]:
    with hosts(2) as made:
        place = lab(made, h1=["a", "b"], h2=["c"])

        async def refused(pair: Pair) -> str:
            try:
                await place.network.cut("one", [pair])
            except OSError as error:
                return str(error)
            return "cut"

        async def main() -> dict[str, Any]:
            found = {"".join(pair): await refused(pair) for pair in (("a", "c"), ("c", "b"))}
            look = told(await place.network.passes([("a", "c"), ("c", "b"), ("a", "b")]))
            return {**found, "look": look, "reject": place.network.unavailable(reject=True)}

        try:
            return asyncio.run(main())
        finally:
            place.close()


def test_a_node_on_a_shared_host_is_not_cut_and_the_reason_is_given() -> None:
    found = inside(shared)
    assert found["ac"] == (
        "a shares the host h1 with b: to be cut off, or to have bad links, a node needs a host of"
        " its own"
    )
    assert "b shares the host h1 with a" in found["cb"]
    assert found["look"] == {"ac": "y?y", "cb": "y?y", "ab": "y?y"}
    assert "no `reject` over SSH" in found["reject"]
