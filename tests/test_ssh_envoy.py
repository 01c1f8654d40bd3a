"""A controller that reaches hosts by SSH and nothing else: a host asks servers for it."""

import socket
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from harness.asking import EnvoyLine, parts_of
from harness.errors import TargetError
from harness.runfile import from_values
from harness.ssh.hosting import Hosting
from harness.ssh.lab import SshLab
from harness.ssh.node import SshNode
from harness.target import Cluster, Place
from tests.inside import inside
from tests.live import until
from tests.support_hosts import ROOT, Hosts, hosts, needs_sshd
from tests.test_ssh_run import PAUSE, outcome, start

NODES = {"h1": ["lock*"], "h2": ["store*"], "h3": ["w1"], "h4": ["w2", "r1"]}


class _Node:
    """What Hosting asks of a node."""

    def __init__(self, station: Any) -> None:
        self.station = station


def test_the_host_of_the_envoy_is_not_cut_off() -> None:
    host = type("Host", (), {"local": False, "name": "h3"})
    station = type("Station", (), {"host": host})()
    node = cast(SshNode, _Node(station))
    assert Hosting({"w1": node}).bound("w1") is None
    said = Hosting({"w1": node}, node).bound("w1")
    assert said is not None
    assert said.startswith("w1 shares the host h3 with the envoy: to be cut off")


def firewalled(made: Hosts) -> None:
    """Let the controller reach sshd on the hosts, and nothing else."""
    for name in NODES:
        made.nft(name, "add", "table", "ip", "firewall")
        hook = "{ type filter hook input priority -300 ; policy accept ; }"
        made.nft(name, "add", "chain", "ip", "firewall", "inside", hook)
        words = "ip saddr 10.77.0.1 tcp dport != 22 drop"
        made.nft(name, "add", "rule", "ip", "firewall", "inside", *words.split())


def whole_run() -> dict[str, Any]:
    with hosts(4) as made:
        made.write(**{name: {"nodes": patterns} for name, patterns in NODES.items()})
        made.write(h4={"envoy": True})
        firewalled(made)
        folder = Path(tempfile.mkdtemp(dir=ROOT))
        words = ("--backend", "ssh", "--inventory", str(made.path))
        run, _ = start(folder, "none", [PAUSE], *words)
        until(lambda: run.poll() is not None or _listens(made), "a server that listens")
        try:
            socket.create_connection((made.place("h1").address, 7201), timeout=0.5).close()
            reached = True
        except TimeoutError:
            reached = False
        told = outcome(run, folder)
        until(lambda: all(len(made.place(n).processes()) == 2 for n in NODES), "quiet hosts")
        log = folder / "runs/latest/logs/envoy.log"
        return told | {"reached": reached, "log": log.read_text()}


def _listens(made: Hosts) -> bool:
    with made.place("h1").inside():
        return ":1C21 " in Path("/proc/thread-self/net/tcp").read_text()


@pytest.mark.ssh
@needs_sshd
def test_a_controller_behind_a_firewall_has_an_envoy_on_a_host() -> None:
    found = inside(whole_run)
    assert not found["reached"], "the controller is to reach no server"
    assert found["verdict"] == "fail", found
    assert "stale-owner-write" in found["anomalies"]
    assert found["grades"] == ["pause: installed"]
    assert found["error"] is None
    assert found["logged"] >= found["acked"] > 0, "the store's own log lies on a host"
    assert found["log"] == ""


def lost() -> list[str]:
    """Ask an envoy whose process was killed."""
    with hosts(1) as made:
        made.write(h1={"envoy": True})
        logs = Path(tempfile.mkdtemp(dir=ROOT))
        spec = from_values({"lock": "atlasmart", "store": "atlasmart"})
        lab = SshLab([], [], made.inventory, "t", logs=logs, parts=parts_of(spec))
        try:
            line = lab._line
            assert isinstance(line, EnvoyLine)
            store = Cluster([Place("store1", "127.0.0.1", 7202, "store", "/nowhere")])
            said = [str(line.ask("lock", "store_log", store))]
            lab._stations["h1"].link.ask("signal", room="_envoy", number=9)
            try:
                line.ask("lock", "store_log", store)
            except TargetError as error:
                said.append(str(error))
        finally:
            lab.close()
        return said


@pytest.mark.ssh
@needs_sshd
def test_an_envoy_that_ended_is_told() -> None:
    answered, ended = inside(lost)
    assert answered == "[]"
    assert ended.startswith("store_log: the envoy")
