"""Packets that must not come in from some addresses, by nft, while the controller is there.

They vanish where they arrive, before any other rule sees them, so the sender notices nothing.  What
comes from the controller to the port of sshd is accepted first, whatever is cut.  Each address is
in a set with a time limit that the kernel watches: while the controller's heartbeat comes it is
renewed, in one transaction, without a gap; when nobody renews it the packets pass again, whatever
became of the agent.
"""

import os
import re

from harness.ssh.agent.chain import nft

_HOOK = "type filter hook input priority -300; policy accept;"
_SETS = {"ip": ("cut4", "ipv4_addr"), "ip6": ("cut6", "ipv6_addr")}


class Cuts:
    """The one table of a run on this host."""

    def __init__(self, table: str, controller: list[str], limit_s: float) -> None:
        """`table` is its name; `controller` what sshd says of the connection, if any."""
        self._table = f"inet {table}"
        self._controller = controller
        self._limit_s = limit_s
        self._cut: list[str] = []
        self._made = False

    def unavailable(self) -> str:
        """Return why nothing can be cut here, found by trying; empty when it can."""
        if self._made:
            return ""
        if os.geteuid():
            return "that needs root there, or a user with sudo (`sudo: true`)"
        try:
            said = nft(self._script())
        except FileNotFoundError:
            return "there is no nft (package nftables)"
        self._made = said.returncode == 0
        return "" if self._made else said.stderr.strip().splitlines()[0]

    def _script(self) -> str:
        spare = ""
        if self._controller:
            address, _, _, port = self._controller
            spare = f"{_family(address)} saddr {address} tcp dport {port} accept;"
        sets = "".join(
            f"set {name} {{ type {kind}; flags timeout; }}\n" for name, kind in _SETS.values()
        )
        drops = "".join(
            f"{family} saddr @{name} counter drop;\n" for family, (name, _) in _SETS.items()
        )
        return f"table {self._table} {{\n{sets}chain in {{ {_HOOK}\n{spare}\n{drops}}}\n}}\n"

    def cut(self, addresses: list[str]) -> str:
        """Let nothing in from these addresses and from no fewer; return an error or nothing."""
        if missing := self.unavailable():
            return missing
        said = nft(self._elements(addresses))
        if said.returncode:
            return said.stderr.strip().splitlines()[0]
        self._cut = addresses
        return ""

    def renew(self) -> None:
        """Extend the time limit of what is cut."""
        if self._cut:
            nft(self._elements(self._cut))

    def _elements(self, addresses: list[str]) -> str:
        script = ""
        for family, (name, _) in _SETS.items():
            script += f"flush set {self._table} {name}\n"
            each = [
                f"{a} timeout {self._limit_s * 1000:.0f}ms"
                for a in addresses
                if _family(a) == family
            ]
            if each:
                script += f"add element {self._table} {name} {{ {', '.join(each)} }}\n"
        return script

    def stopped_packets(self) -> int:
        """Return how many packets were stopped, by the kernel's count."""
        listed = nft(f"list chain {self._table} in")
        return sum(int(n) for n in re.findall(r"counter packets (\d+)", listed.stdout))


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"
