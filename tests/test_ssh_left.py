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
from harness.local.lab import LocalNode
from harness.ssh.inventory import read
from harness.ssh.lab import SshLab
from harness.ssh.node import DiskNode
from tests.inside import inside
from tests.live import until
from tests.support_agent import agent, sleeping
from tests.support_hosts import ROOT, Hosts, hosts, needs_sshd, program_path
from tests.test_ssh_agent import daemon

pytestmark = [pytest.mark.ssh, needs_sshd]

_LEASE_S = 3.0
_ALONE = 2  # processes of a host on which nothing happens: sshd, and what holds it together


def controller() -> None:
    """Begin a fault of each kind on running nodes, say so, and wait to be killed."""
    lab = SshLab(["a", "b"], [], read(ROOT / "hosts.yaml"), "run", _LEASE_S)
    for node in lab.nodes.values():
        node.spawn(daemon(1007), log=ROOT / f"{node.name}.log")
    until(lambda: sleeping(1007) == 4, "daemons")
    until(lambda: all(len(n.processes()) == 4 for n in lab.nodes.values()), "no more")
    asyncio.run(lab.network.cut("test", [("a", "b"), ("b", "a")]))
    node = lab.nodes["a"]
    assert isinstance(node, DiskNode)
    node.fill("test")
    node.stop("test")
    until(lambda: node.threads().stopped == 4, "a stop")
    lab.nodes["b"].kill()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()


@contextmanager
def controlled() -> Iterator["subprocess.Popen[bytes]"]:
    """Start a controller in a process of its own."""
    argv = [sys.executable, "-c", "from tests.test_ssh_left import *; controller()"]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def mounts(place: LocalNode) -> list[str]:
    """Return the mounts of a host, as its first process sees them."""
    found = sorted(process.pid for process in place.processes())
    return Path(f"/proc/{found[-1]}/mountinfo").read_text().splitlines()


def _quiet(made: Hosts, name: str) -> bool:
    rules = made.nft(name, "list", "ruleset")
    return len(made.place(name).processes()) == _ALONE and rules == ""


def killed() -> dict[str, Any]:
    """Return how long the faults outlive the controller that was killed during them."""
    with hosts(2) as made:
        before = [mounts(made.place(name)) for name in ("h1", "h2")]
        with controlled() as process:
            busy = [len(made.place(name).processes()) for name in ("h1", "h2")]
            rules = [made.nft(name, "list", "ruleset") for name in ("h1", "h2")]
            os.kill(process.pid, signal.SIGKILL)
            began = time.monotonic()
            until(lambda: _quiet(made, "h1") and _quiet(made, "h2"), "the end of all faults")
            took_s = time.monotonic() - began
        after = [mounts(made.place(name)) for name in ("h1", "h2")]
    return {"took_s": took_s, "busy": busy, "rules": rules, "mounts": after == before}


def test_nothing_is_left_when_the_controller_is_killed_during_faults() -> None:
    found = inside(killed)
    assert min(found["busy"]) > _ALONE
    assert "10.77.0.12 timeout" in found["rules"][0]
    assert "10.77.0.11 timeout" in found["rules"][1]
    assert found["took_s"] < _LEASE_S + 3
    assert found["mounts"]


def cut_off() -> dict[str, Any]:
    """Take the network away from one host of two, and from the controller that is then killed."""
    with hosts(2) as made, controlled() as process:
        link_down(made.place("h1"))
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: _quiet(made, "h2"), "the host that is reached to be told")
        told_s = time.monotonic() - began
        # Its sshd is not told of the end of the connection: only the lease tells.
        until(lambda: not _agents(made.place("h1")), "the lease of the host that is cut off")
        return {"told_s": told_s, "lease_s": time.monotonic() - began}


def _agents(place: LocalNode) -> list[int]:
    """Return all processes of a host but sshd's."""
    found = []
    for process in place.processes():
        line = procfs.read(f"/proc/{process.pid}/cmdline")
        if line and b"sshd" not in line and not line.startswith(b"unshare"):
            found.append(process.pid)
    return found


def link_down(place: LocalNode) -> None:
    """Pull the plug of a host at the hub."""
    subprocess.run(["ip", "link", "set", place.port, "down"], check=True)


def test_the_lease_ends_all_on_a_host_that_is_cut_off() -> None:
    took = inside(cut_off)
    assert took["told_s"] < 3
    assert _LEASE_S - 1.5 < took["lease_s"] < _LEASE_S + 3


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
    assert found["took_s"] < _LEASE_S + 2


def swept() -> list[str]:
    """Kill both processes of an agent, then start another one, in a network of their own."""
    nft = program_path("nft")
    assert nft is not None

    def tables() -> str:
        done = subprocess.run([nft, "list", "tables"], capture_output=True, text=True, check=True)
        return done.stdout

    with agent() as first:
        assert first.link.ask("can_cut") == ""
        made = tables()
        os.kill(first.link._carrier._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        until(lambda: first.link.lost, "the agent to be missed")
    left = tables()
    with agent() as second:
        assert second.means == "namespace"
        return [made, left, tables()]


def test_rules_of_an_agent_whose_guard_was_killed_are_swept_by_the_next() -> None:
    made, left, after = inside(swept)
    assert made.startswith("table inet winkle_")
    assert left == made
    assert after == ""
