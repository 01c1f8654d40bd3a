"""The controller is killed during a fault, or loses a host: nothing is left on any host."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import procfs
from harness.clocks import Lie, Skew
from harness.local.lab import LocalNode
from harness.shape import Shape
from harness.ssh.inventory import read
from harness.ssh.lab import SshLab
from harness.ssh.node import DiskNode
from tests.inside import inside
from tests.live import slay, stretched, until
from tests.support_agent import agent, living, sleeping
from tests.support_hosts import ROOT, Hosts, agents, hosts, needs_sshd, program_path
from tests.test_ssh_agent import daemon
from tests.test_ssh_cuts import GIVEN_UP_S

pytestmark = [pytest.mark.ssh, needs_sshd]

_LEASE_S = 3.0
_QUIET_S = 15.0
_ALONE = 2  # processes of a host on which nothing happens: sshd, and what holds it together


def controller() -> None:
    """Begin a fault of each kind on running nodes, say so, and wait to be killed."""
    lab = SshLab(["a", "b"], [], read(ROOT / "hosts.yaml"), "run", _LEASE_S)
    for node in lab.nodes.values():
        node.spawn(daemon(1007), log=ROOT / f"{node.name}.log")
    until(lambda: sleeping(1007) == 4, "daemons")
    until(lambda: all(len(n.processes()) == 4 for n in lab.nodes.values()), "no more")
    assert lab.links.unavailable() is None
    asyncio.run(faults(lab))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()


async def faults(lab: SshLab) -> None:
    node, other = lab.nodes["a"], lab.nodes["b"]
    assert isinstance(node, DiskNode)
    await node.clocks.skew("test", Skew(wall=Lie(offset_s=1000.0)))
    await lab.links.shape("test", [("a", "b"), ("b", "a")], Shape(delay_s=0.1))
    await lab.network.cut("test", [("a", "b"), ("b", "a")])
    await asyncio.to_thread(node.fill, "test")
    node.stop("test")
    while node.threads().stopped < 4:
        await node.look()
    other.kill()


@contextmanager
def controlled() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a controller in a process of its own."""
    argv = [sys.executable, "-c", "from tests.test_ssh_left import *; controller()"]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def state(made: Hosts, name: str) -> dict[str, Any]:
    """Return all of a host that a run may change."""
    place = made.place(name)
    found = place.processes()
    lines = (line_of(process.pid) for process in found)
    named = (line.partition(b"[listener]")[0].replace(b"\0", b" ").decode() for line in lines)
    return {
        "processes": sorted(named),
        "mounts": mounts(place),
        "rules": made.nft(name, "list", "ruleset"),
        "interfaces": made.ask(name, "ip", "-o", "link"),
        "disciplines": made.ask(name, "tc", "qdisc"),
        "queues": made.queues(name),
    }


def mounts(place: LocalNode) -> list[str]:
    """Return the mounts of a host as sshd sees them, but for those of the machine's own engine."""
    (sshd,) = (p.pid for p in place.processes() if b"[listener]" in line_of(p.pid))
    listed = Path(f"/proc/{sshd}/mountinfo").read_text().splitlines()
    return [line for line in listed if "/docker" not in line]


def line_of(pid: int) -> bytes:
    return procfs.read(f"/proc/{pid}/cmdline") or b""


def parts(made: Hosts) -> list[int]:
    """Return guard of one host, and all but guard of the other."""
    guard, janitor, inner, *_ = agents(made.place("h1"))
    other = agents(made.place("h2"))[0]
    assert guard not in (janitor, inner, other)
    return [janitor, inner, other]


def killed() -> dict[str, Any]:
    """Kill processes of a run during faults of every kind, one run after the other."""
    told: dict[str, Any] = {}
    with hosts(2) as made:
        until(lambda: _quiet(made, "h1") and _quiet(made, "h2"), "sshd to have looked who knocked")
        before = {name: state(made, name) for name in ("h1", "h2")}
        for victim in ("controller", "agents"):
            with controlled() as process:
                busy = [state(made, name) for name in ("h1", "h2")]
                slay(*([process.pid] if victim == "controller" else parts(made)))
                told[victim] = {"took_s": settle(made, before), "busy": busy}
    return told


def settle(made: Hosts, before: dict[str, Any]) -> float:
    """Wait until hosts are as they were, and return how long that took."""
    began = time.monotonic()
    while different := {n: _changes(old, state(made, n)) for n, old in before.items()}:
        if not any(different.values()):
            break
        assert time.monotonic() - began < _QUIET_S, different
        time.sleep(0.02)
    return time.monotonic() - began


def _changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {what: (old[what], new[what]) for what in old if old[what] != new[what]}


def test_nothing_is_left_when_any_process_is_killed_during_faults() -> None:
    for victim, found in inside(killed).items():
        assert found["took_s"] < stretched(6.0), victim
        first, second = found["busy"]
        assert len(first["processes"]) > _ALONE
        for host, address in ((first, "10.77.0.12"), (second, "10.77.0.11")):
            assert "table inet winkle_" in host["rules"]
            assert "table ip winkle_" in host["rules"]
            assert host["rules"].count(f"{address} timeout") == 2
            assert host["queues"] != ""


def cut_off() -> dict[str, Any]:
    """Take the network away from one host of two, and from the controller that is then killed."""
    with hosts(2) as made, controlled() as process:
        link_down(made.place("h1"))
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: _quiet(made, "h2"), "the host that is reached to be told")
        told_s = time.monotonic() - began
        # Its sshd is not told of the end of the connection: only the lease tells.
        until(lambda: not agents(made.place("h1")), "the lease of the host that is cut off")
        return {"told_s": told_s, "lease_s": time.monotonic() - began}


def _quiet(made: Hosts, name: str) -> bool:
    rules = made.nft(name, "list", "ruleset")
    return len(made.place(name).processes()) == _ALONE and rules == ""


def link_down(place: LocalNode) -> None:
    """Pull the plug of a host at the hub."""
    subprocess.run(["ip", "link", "set", place.port, "down"], check=True)


def test_the_lease_ends_all_on_a_host_that_is_cut_off() -> None:
    took = inside(cut_off)
    assert took["told_s"] < stretched(3.0)
    assert _LEASE_S - 1.5 < took["lease_s"] < _LEASE_S + stretched(3.0)


def plugged_out() -> dict[str, Any]:
    with hosts(1) as made:
        lab = SshLab(["a"], [], made.inventory, "run", _LEASE_S)
        try:
            node = lab.nodes["a"]
            link_down(made.place("h1"))
            began = time.monotonic()
            try:
                while True:
                    node.processes()
            except OSError as error:
                return {"why": str(error), "took_s": time.monotonic() - began}
        finally:
            lab.close()


def test_a_host_that_is_cut_off_is_given_up_within_its_deadline() -> None:
    found = inside(plugged_out)
    assert "host h1: " in found["why"]
    assert found["took_s"] < GIVEN_UP_S


def swept() -> list[str]:
    """Kill all processes of an agent, then start another one, in a network of their own."""
    nft = program_path("nft")
    assert nft is not None

    def tables() -> str:
        done = subprocess.run([nft, "list", "tables"], capture_output=True, text=True, check=True)
        return done.stdout

    with agent() as first:
        assert first.link.ask("can_cut") == ""
        made = tables()
        alive = living("winkle-agent")
        for pid in alive:  # none is to end by another one's death, and clean up
            os.kill(pid, signal.SIGSTOP)
        slay(*alive)
        until(lambda: first.link.lost, "the agent to be missed")
    left = tables()
    with agent() as second:
        assert second.means == "namespace"
        return [made, left, tables()]


def test_rules_of_an_agent_of_which_all_was_killed_are_swept_by_the_next() -> None:
    made, left, after = inside(swept)
    assert made.startswith("table inet winkle_")
    assert left == made
    assert after == ""
