"""One host of a run: its agent, and the processes that were started there."""

import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.ssh import bundle
from harness.ssh.carrier import Carrier, PipeCarrier
from harness.ssh.child import RemoteChild
from harness.ssh.inventory import Host
from harness.ssh.link import Link

LEASE_S = 5.0
_START_S = 20.0


class Station:
    """An agent at work on a host.

    `means` says how its processes are kept together: `namespace`, or `marks` for the reason in
    `reason`; `own_disks` whether data folders lie in memory, with a size of their own.
    """

    def __init__(self, host: Host, token: str, lease_s: float = LEASE_S) -> None:
        """Connect and start the agent.  Raises HarnessError."""
        self.host = host
        options = json.dumps(
            {"lease_s": lease_s, "token": token, "data": str(host.data) if host.data else None}
        )
        self._children: dict[str, RemoteChild] = {}
        self._numbers = itertools.count(1)
        self.link = Link(host.name, _carrier(host, options, lease_s), lease_s)
        self.link.on_event, self.link.on_lost = self._heard, self._lost
        self.link.poll = self._flush
        try:
            first = self.link.open(bundle.packed(), _START_S)
        except HarnessError:
            self.link.close()
            raise
        self.means: str = first["means"]
        self.reason: str = first["reason"]
        self.own_disks: bool = first["own_disks"]
        self.kernel: str = first["kernel"]
        self._ahead_s: float = first["monotonic_s"] - time.monotonic()
        self._why_no_lie: str | None = None
        self._tried_to_lie = False

    @property
    def kept(self) -> str:
        """How what is started there is kept together, in words."""
        if self.means == "namespace":
            return "processes in a pid namespace"
        return f"processes known by a mark in their environment ({self.reason})"

    def up_s(self) -> float:
        """Return what the host's monotonic clock shows, less what its answer took at the start."""
        return time.monotonic() + self._ahead_s

    def cannot_lie(self) -> str | None:
        """Return why no clock can be set there, None when one was, found by trying once."""
        if not self._tried_to_lie:
            self._why_no_lie = self.link.ask("can_lie")
            self._tried_to_lie = True
        return self._why_no_lie

    def spawn(
        self,
        room: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        log: Path,
        *,
        pipes: bool,
    ) -> RemoteChild:
        """Order a process to be started; returns at once.  Raises OSError (the log)."""
        name = f"{room} {next(self._numbers)}"
        child = self._children[name] = RemoteChild(name, self.link, log, pipes=pipes)
        answer = self.link.tell(
            "spawn",
            room=room,
            child=name,
            argv=list(argv),
            env=dict(env),
            cwd=cwd,
            pipes=pipes,
        )
        answer.add_done_callback(child.started)
        return child

    def _heard(self, record: dict[str, Any]) -> None:
        child = self._children.get(record["child"])
        if child is not None:
            child.heard(record)

    def _flush(self) -> None:
        for child in list(self._children.values()):
            if child.flush():
                del self._children[child.name]

    def _lost(self, why: str) -> None:
        for child in list(self._children.values()):
            child.end(f"the loss of its host: {why}")

    def close(self) -> None:
        """End the agent and all that it started."""
        self.link.close()
        for child in list(self._children.values()):
            child.end("signal SIGKILL")


def _carrier(host: Host, options: str, lease_s: float) -> Carrier:
    if host.local:
        try:
            return PipeCarrier(bundle.argv(host.agent_python, options))
        except OSError as error:
            raise HarnessError(f"host {host.name}: no agent: {error}") from error
    from harness.ssh.connect import SshCarrier

    line = bundle.command(host.agent_python, options, sudo=host.sudo)
    return SshCarrier(host, lease_s, line)
