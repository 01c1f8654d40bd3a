"""Lost replies between workers and servers on hosts: by proxies on the host of the workers."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.ssh.node import SshNode
from harness.ssh.proxies import Proxies
from harness.target import Place
from tests.inside import inside
from tests.live import until
from tests.support_hosts import ROOT, hosts, needs_sshd
from tests.test_ssh_run import outcome, start

pytestmark = [pytest.mark.ssh, needs_sshd]


def over_ssh() -> dict[str, Any]:
    with hosts(3) as made:
        made.write(
            h1={"nodes": ["lock*"]}, h2={"nodes": ["store*"]}, h3={"nodes": ["w*", "r*", "a*"]}
        )
        folder = Path(tempfile.mkdtemp(dir=ROOT))
        words = ("--backend", "ssh", "--inventory", str(made.path))
        faults = ["message:who=all,at=1s,for=2s", "kill:who=w2,at=1.5s,for=0.3s"]
        found = outcome(*start(folder, "checked", faults, *words, length="4s"))
        names = ("h1", "h2", "h3")
        until(lambda: all(len(made.place(n).processes()) == 2 for n in names), "quiet hosts")
        return found | {"log": (folder / "runs/latest/logs/proxies.log").read_text()}


def test_a_reply_is_lost_on_its_way_and_a_killed_worker_does_not_take_the_proxies_along() -> None:
    found = inside(over_ssh)
    assert found["grades"] == ["kill: installed", "message: installed"], found
    assert found["verdict"] in ("pass", "unknown"), found
    assert not found["anomalies"]
    assert found["log"] == ""


def lodged(host: str) -> SshNode:
    return cast(SshNode, SimpleNamespace(station=SimpleNamespace(host=SimpleNamespace(name=host))))


def test_workers_on_several_hosts_have_no_proxies_and_the_reason_is_given(tmp_path: Path) -> None:
    places = {"lock": [Place("lock1", "192.0.2.1", 7300, "lock", "/data")], "store": []}
    nodes = {"w1": lodged("a"), "w2": lodged("b"), "w3": lodged("b")}
    apart = Proxies(nodes, ["w1", "w2"], cast(Any, places), tmp_path / "log")
    assert apart.unavailable("lock") == (
        "the workers live on a, b: a trick is meant for the next messages of any of them, which"
        " only one host can count"
    )
    together = Proxies(nodes, ["w2", "w3"], cast(Any, places), tmp_path / "log")
    assert together.unavailable("lock") is None
    assert together.unavailable("store") == "the store has no server process of its own"
