"""A room holds all processes of one node, whoever started them.

A database forks and calls setsid and must still be stopped whole, so parents and sessions do not
do.  Several nodes may share a host, so each has a pid namespace of its own inside of the agent's;
its first process does nothing but reap, and is no process of the node.  Where there are no
namespaces, the environment tells: it is inherited by all that a process starts.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any, Union

from harness import procfs
from harness.local import namespaces as ns
from harness.ssh.agent import look
from harness.ssh.agent.chain import MARK, Means


class Room:
    """A pid namespace inside of the agent's own."""

    def __init__(self) -> None:
        """Make it.  Raises OSError."""
        with _back_home():
            ns.unshare(ns.NEWPID)
            self._first = os.fork()
            if self._first == 0:
                _reap_for_ever()
            self._namespace = os.open(f"/proc/{self._first}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._inode = os.fstat(self._namespace).st_ino

    def spawn(self, argv: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        """Start a process here.  Raises OSError."""
        with _back_home():
            ns.setns(self._namespace, ns.NEWPID)
            return _started(argv, **how)

    def pids(self) -> list[int]:
        """Return the pids of all that lives here."""
        return [
            pid
            for pid in procfs.pids()
            if pid != self._first and look.namespace(pid) == self._inode
        ]


class MarkedRoom:
    """All processes whose environment bears the same mark."""

    def __init__(self, token: str, name: str) -> None:
        self._value = f"{token}/{name}/"

    def spawn(self, argv: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        """Start a process here.  Raises OSError."""
        how["env"] = dict(how["env"], **{MARK: self._value})
        return _started(argv, **how)

    def pids(self) -> list[int]:
        """Return the pids of all that lives here."""
        return [pid for pid in procfs.pids() if look.has_mark(pid, f"{MARK}={self._value}")]


AnyRoom = Union[Room, MarkedRoom]  # noqa: UP007 - no `|` of classes before Python 3.10


def make(means: Means, name: str) -> AnyRoom:
    """Return a new room.  Raises OSError."""
    return Room() if means.kind == "namespace" else MarkedRoom(means.token, name)


def members(room: AnyRoom) -> list[list[int]]:
    """Return pid and start time of all that lives in a room."""
    found = ((pid, look.start_ticks(pid)) for pid in room.pids())
    return [[pid, start] for pid, start in found if start is not None]


@contextlib.contextmanager
def _back_home() -> Iterator[None]:
    """Whatever was changed about where children are born, undo it afterwards."""
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        ns.setns(home, ns.NEWPID)
        os.close(home)


def _reap_for_ever() -> None:
    """Be the first process of a room: orphans come here, and the kernel buries them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.closerange(0, 4096)  # else the ends of pipes that others wait for would stay open here
    while True:
        signal.pause()


def _started(argv: list[str], **how: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv, start_new_session=True, **how)
