"""Which packets go through the lines of this host: a table of nft of its own.

The receivers are in a set with a time limit that the kernel watches, as those are that are cut off:
when nobody renews it, packets take no detour any more.  What goes to the controller from the port
of sshd never takes one.
"""

import os
import socket
from typing import Any

from harness.local import netfilter
from harness.ssh.agent.chain import nft
from harness.ssh.agent.lines import Lines
from harness.ssh.agent.packets import MARK, Queue

_HOOK = "type filter hook output priority -300; policy accept;"


class Links:
    """The bad links from this host to others."""

    def __init__(self, table: str, controller: list[str], limit_s: float) -> None:
        """`table` is its name; `controller` what sshd says of the connection, if any."""
        self._table = table
        self._controller = controller
        self._limit_s = limit_s
        self._bad: list[str] = []
        self._lines: Lines | None = None

    def unavailable(self) -> str:
        """Return why no link can be made bad here, found by trying; empty when it can."""
        if self._lines is not None:
            return ""
        if os.geteuid():
            return "that needs root there, or a user with sudo (`sudo: true`)"
        try:
            self._lines = self._made()
        except FileNotFoundError:
            return "there is no nft (package nftables)"
        except OSError as error:
            return f"this kernel hands over no packets: {error.strerror or error}"
        return ""

    def _made(self) -> Lines:
        said = nft(self._script())
        if said.returncode:
            raise OSError(said.stderr.strip().splitlines()[0])
        queue = Queue()
        failed: OSError | None = None
        for expression in queue.expressions():
            try:
                self._add_rule(expression)
            except OSError as error:
                failed = error
            else:
                return Lines(queue)
        queue.close()
        nft(f"delete table ip {self._table}")
        raise failed or OSError("no rule")

    def _script(self) -> str:
        spare = ""
        if self._controller and ":" not in self._controller[0]:
            address, _, _, port = self._controller
            spare = f"ip daddr {address} tcp sport {port} accept;"
        return (
            f"table ip {self._table} {{\nset bad {{ type ipv4_addr; flags timeout; }}\n"
            f"chain out {{ {_HOOK}\n{spare}\nmeta mark {MARK} meta mark set 0 accept;\n}}\n}}\n"
        )

    def _add_rule(self, expression: bytes) -> None:
        chosen = netfilter.destination_in("bad")
        rule = netfilter.rule(socket.AF_INET, self._table, "out", *chosen, expression)
        opened = netfilter.Netfilter()
        try:
            opened.commit([rule])
        finally:
            opened.close()

    def shape(self, links: dict[str, Any]) -> str:
        """Let the links to these receivers be bad, and no others; return an error or nothing."""
        if missing := self.unavailable():
            return missing
        assert self._lines is not None, "it is available"
        self._lines.change(links)
        said = nft(self._elements(list(links)))
        if said.returncode:
            return said.stderr.strip().splitlines()[0]
        self._bad = list(links)
        return ""

    def forget(self, receivers: list[str]) -> None:
        """Lose what is on the way to these."""
        if self._lines is not None:
            self._lines.forget(receivers)

    def renew(self) -> None:
        """Extend the time limit."""
        if self._bad:
            nft(self._elements(self._bad))

    def _elements(self, receivers: list[str]) -> str:
        script = f"flush set ip {self._table} bad\n"
        if receivers:
            each = ", ".join(f"{a} timeout {self._limit_s * 1000:.0f}ms" for a in receivers)
            script += f"add element ip {self._table} bad {{ {each} }}\n"
        return script
