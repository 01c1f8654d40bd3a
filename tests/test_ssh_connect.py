"""Connections to real sshd: only the host whose key was given, and a clear word when it fails."""

import time

import pytest

from harness.errors import HarnessError
from harness.ssh import connect
from harness.ssh import node as nodes
from harness.ssh.inventory import Host
from harness.ssh.station import Station
from tests.inside import inside
from tests.live import until
from tests.support_hosts import ROOT, hosts, make_key, needs_sshd

pytestmark = [pytest.mark.ssh, needs_sshd]


def refusals() -> dict[str, str]:
    """Return what is said, by what is wrong."""
    said = {}

    def attempt(what: str, host: Host) -> None:
        try:
            Station(host, "test").close()
        except HarnessError as error:
            said[what] = str(error)
        else:
            said[what] = "connected"

    with hosts(2) as made:
        good, other = made.host("h1"), made.host("h2")
        make_key(ROOT / "stranger")
        (ROOT / "nonsense").write_text("no key at all\n")
        attempt("nothing", good)
        attempt("another host's key", good.model_copy(update={"host_key": other.host_key}))
        attempt("no key given", good.model_copy(update={"host_key": None}))
        ecdsa = make_key(ROOT / "ecdsa", "ecdsa")
        attempt("a key of another type", good.model_copy(update={"host_key": ecdsa}))
        torn = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"
        attempt("a torn key", good.model_copy(update={"host_key": torn}))
        for what in ("stranger", "nonsense", "nowhere"):
            attempt(what, good.model_copy(update={"key": ROOT / what}))
        attempt("an unknown user", good.model_copy(update={"user": "nobody-of-that-name"}))
        attempt("no sshd", good.model_copy(update={"port": 2222}))
        attempt("no python", good.model_copy(update={"agent_python": "/nowhere/python3"}))
        connect.CONNECT_S = 1.0
        made.place("h1").stop("test")
        began = time.monotonic()
        attempt("frozen", good)
        said["seconds"] = f"{time.monotonic() - began:.1f}"
    return said


def test_every_refusal_says_what_is_wrong_and_what_to_do() -> None:
    said = inside(refusals)
    assert said.pop("nothing") == "connected"
    assert float(said.pop("seconds")) < 10
    words = {
        "another host's key": "its host key is not the one of the inventory: found ssh-ed25519 SHA",
        "no key given": "the inventory has no `host_key` for it: take the text",
        "a key of another type": "it offers a host key of type ssh-ed25519, the inventory",
        "a torn key": "the inventory's `host_key` is no public key",
        "stranger": "it refuses the key",
        "nonsense": "nonsense is no private key",
        "nowhere": "nowhere cannot be read: No such file",
        "an unknown user": "for user nobody-of-that-name",
        "no sshd": "port 2222): cannot be connected to: Connection refused",
        "no python": "/nowhere/python3",
        "frozen": "it accepts connections and says nothing",
    }
    assert said.keys() == words.keys()
    for what, word in words.items():
        assert word in said[what], (what, said[what])
        assert "host h1" in said[what]


def usable() -> list[object]:
    with hosts(1) as made:
        station = Station(made.host("h1"), "test")
        node = nodes.make(station, "a")
        found = [station.means, station.reason, station.link.ask("can_cut"), node.address]
        outside = len(made.place("h1").processes())
        station.close()
        rules = made.nft("h1", "list", "ruleset")
        until(lambda: len(made.place("h1").processes()) == 2, "sshd to be alone again")
        return [*found, outside, rules]


def test_an_agent_leaves_nothing_when_it_is_closed() -> None:
    means, reason, can_cut, address, outside, rules = inside(usable)
    assert (means, reason, can_cut, address) == ("namespace", "", "", "10.77.0.11")
    assert outside > 2, "of which one is sshd, and one holds the host together"
    assert rules == ""
