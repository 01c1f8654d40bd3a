"""An ordinary user on the hosts: with `sudo: true` all faults are had, without it some are not."""

import asyncio
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.ssh.lab import SshLab
from tests.inside import inside
from tests.live import until
from tests.support_hosts import agents, hosts, needs_sshd, program_path

pytestmark = [
    pytest.mark.ssh,
    needs_sshd,
    pytest.mark.skipif(program_path("sudo") is None, reason="sudo is missing (package sudo)"),
]

# As distributions have it: a terminal of its own for what is started.
MAY = "Defaults use_pty\nwinkle ALL=(root) NOPASSWD: ALL\n"
MAY_NOT = "winkle ALL=(root) ALL\n"
PYTHON = program_path("python3")  # the tests' own may lie where an ordinary user does not come


def with_sudo() -> dict[str, Any]:
    with hosts(2, [MAY, MAY_NOT]) as made:
        user = {"user": "winkle", "agent_python": PYTHON}
        found: dict[str, Any] = {}

        def able(lab: SshLab) -> list[Any]:
            node = lab.nodes["a"]
            return [
                lab.network.unavailable(),
                lab.links.unavailable(),
                node.clocks.unavailable(),
                node.station.means,
                node.station.own_disks,
            ]

        made.write(h1=user | {"nodes": ["a"], "sudo": True}, h2=user | {"nodes": ["b"]})
        lab = SshLab(["a", "b"], [], made.inventory, "t")
        try:
            found["refused"] = lab.nodes["b"].station.link.ask("can_cut")
            found["b lies"] = lab.nodes["b"].clocks.unavailable()
        finally:
            lab.close()
        lab = SshLab(["a"], [], made.inventory, "t")
        try:
            found["able"] = able(lab)
            asyncio.run(lab.nodes["a"].look())
        finally:
            lab.close()
        until(lambda: not agents(made.place("h1")), "the end of the agent")
        found["rules"] = made.nft("h1", "list", "ruleset")
        made.write(h1={"nodes": []}, h2={"nodes": ["a"], "sudo": True})
        try:
            SshLab(["a"], [], made.inventory, "t").close()
        except HarnessError as error:
            found["asked"] = str(error)
        return found


def test_a_user_with_sudo_has_all_faults_and_one_without_is_told_what_is_missing() -> None:
    found = inside(with_sudo)
    assert found["able"] == [None, None, None, "namespace", True]
    assert found["rules"] == ""
    assert found["refused"] == "that needs root there, or a user with sudo (`sudo: true`)"
    assert found["b lies"] is None, "its own processes may be lied to"
    assert "host h2: " in found["asked"]
    assert "sudo: a password is required" in found["asked"]
