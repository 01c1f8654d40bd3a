"""The SSH backend: the harness on this machine, one agent on every host.

The run's process needs the network of this machine, so it lives in no sandbox.  It dies with outer;
the agents end what they started when they hear no more of it.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import adversary
from harness.backend import Left
from harness.errors import HarnessError
from harness.spec import RunSpec
from harness.ssh import inventory
from harness.ssh.lab import SshLab

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def require() -> None:
    """Stop where the harness itself cannot live.  Raises HarnessError."""
    if sys.platform != "linux":
        raise HarnessError("the SSH backend needs Linux on the controller and on the hosts")


def launch(folder: Path) -> Left:
    """Let the run live in a process of its own, and hand signals on to it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        run = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.ssh.main", str(folder)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

        def forward(number: int, _frame: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.pid, number)

        previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    try:
        return Left(run.wait())
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def build(names: Sequence[str], spec: RunSpec, folder: Path) -> SshLab:
    """Connect to the hosts of the run's inventory and make the nodes.

    Raises HarnessError, UsageError.
    """
    crew = {*spec.worker_names(), adversary.WORKER}
    workers = [name for name in names if name in crew]
    servers = [name for name in names if name not in crew]
    assert spec.inventory is not None, "asked for with the backend"
    return SshLab(servers, workers, inventory.read(Path(spec.inventory)), folder.name)
