"""The three processes of the agent, and the means by which all that they started ends with them.

::

    guard    what sshd started: waits, then deletes what no namespace takes away
    janitor  waits for the end of guard, whatever ends it, and does the same once more
    agent    pid 1 of a pid namespace; does the work          dies with guard (PDEATHSIG)

With a pid namespace the kernel kills all that was started here as soon as the agent ends, stopped
processes and those that called setsid included, whichever of the two was killed; its mounts go with
the last of them.  Root may make one; others need user namespaces, in which they keep their own uid.
Where neither is allowed, processes are known by a variable in their environment: then guard or
janitor kills them, and a program that clears its environment is not found.  Which means was found
is said.  No control group is made or needed: whether the host has version 1 or 2 of them, or lets
nobody write there, is all the same.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import procfs
from harness.local import namespaces as ns
from harness.ssh.agent import look

MARK = "WINKLE_ROOM"
_END_S = 5.0
_FAMILIES = ("inet", "ip")  # of tables: what is cut off, and bad links
NFT_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


class Means:
    """How processes are kept together: `kind` is `namespace`, or `marks` for the reason `reason`.

    `token` is the run's name, `table` that of its tables of nft, one a family.
    """

    def __init__(self, token: str, reason: str, folders: int) -> None:
        self.token = token
        self.reason = reason
        self.kind = "marks" if reason else "namespace"
        # The guard by its namespace, pid and start time: who finds the table knows whether anybody
        # still needs it.
        mine = os.getpid()
        self.table = f"winkle_{look.namespace(mine)}_{mine}_{look.start_ticks(mine)}"
        self._folders = folders

    def remove_at_end(self, folder: str) -> None:
        """Have a folder removed when the agent has ended."""
        os.write(self._folders, folder.encode() + b"\0")


def run(agent: Callable[[Means], None], token: str) -> int:
    """Be the guard: start the agent, wait for its end, clear up, and return its exit code."""
    # A hang-up must end nothing half-way.  A handler, unlike SIG_IGN, is not inherited by programs.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _sweep()
    reason = _try_out()
    folders_r, folders_w = os.pipe()
    means = Means(token, reason, folders_w)
    life = _start_janitor(means, folders_r, folders_w)
    home = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    if not reason:
        _leave()
    pid = os.fork()
    if pid == 0:
        for fd in (folders_r, life):
            os.close(fd)
        _be_agent(agent, means)
    os.close(folders_w)
    _let_go_of(0, 1)  # the controller must see the end of the agent, not that of its guard
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGKILL))
    _, status = os.waitpid(pid, 0)
    _remove(folders_r)
    with contextlib.suppress(OSError):  # refused to who is not root, and has no rules to delete
        if not reason:
            ns.setns(home, ns.NEWPID)  # nothing more can be started in a namespace that is over
        _clear_up(means)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _start_janitor(means: Means, folders_r: int, folders_w: int) -> int:
    """Start the janitor, in a session of its own; return what must stay open while guard lives."""
    life_r, life_w = os.pipe()
    child = os.fork()
    if child:
        os.close(life_r)
        os.waitpid(child, 0)
        return life_w
    try:
        os.setsid()
        if not os.fork():
            for fd in (life_w, folders_w):
                os.close(fd)
            _let_go_of(0, 1, 2)
            os.read(life_r, 1)
            _remove(folders_r)
            _clear_up(means)
    finally:
        os._exit(0)


def _let_go_of(*fds: int) -> None:
    """Leave what came from sshd."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in fds:
        os.dup2(nothing, fd)


def _be_agent(agent: Callable[[Means], None], means: Means) -> None:
    """Be the agent's process; never returns."""
    code = 1
    try:
        ns.die_with_parent(signal.SIGKILL)
        if means.kind == "namespace":
            _own_mounts()
        agent(means)
        code = 0
    except BaseException:  # noqa: BLE001 - told on the way out, whatever it is
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _leave() -> None:
    """Leave the host's pid and mount namespaces; the next child is pid 1.  Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    ns.unshare(ns.NEWPID | ns.NEWNS | (ns.NEWUSER if uid else 0))
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            Path("/proc/self", name).write_text(text)


def _own_mounts() -> None:
    """Keep mounts to ourselves, and have a /proc with our own pids.  Raises OSError."""
    ns.mount("none", "/", None, ns.MS_REC | ns.MS_PRIVATE)
    ns.mount("proc", "/proc", "proc", ns.MS_NOSUID | ns.MS_NODEV | ns.MS_NOEXEC)


def _try_out() -> str:
    """Return why there can be no namespace of our own, by trying in a child; empty when it can."""
    said_r, said_w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _leave()
            if not os.fork():
                _own_mounts()
                os._exit(0)
            _, status = os.wait()
            if status:
                os.write(said_w, b"a private /proc cannot be mounted")
        except OSError as error:
            os.write(said_w, (error.strerror or str(error)).encode())
        finally:
            os._exit(0)
    os.close(said_w)
    os.waitpid(child, 0)
    with os.fdopen(said_r, "rb") as said:
        return said.read().decode()


def nft(script: str) -> "subprocess.CompletedProcess[str]":
    """Have nft carry out a script as one transaction.  Raises FileNotFoundError."""
    path = shutil.which("nft", path=NFT_PATH)
    if path is None:
        raise FileNotFoundError("nft")
    return subprocess.run(
        [path, "-f", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )


def _clear_up(means: Means) -> None:
    """Delete the run's rules; without a namespace also end its processes.  Raises OSError."""
    deadline = time.monotonic() + _END_S
    marks = means.kind == "marks"
    while marks and (left := list(_marked(means.token))) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for family in _FAMILIES:
        nft(f"delete table {family} {means.table}")


def _sweep() -> None:
    """Delete the tables of agents whose guard was killed as well."""
    ours = f"winkle_{look.namespace(os.getpid())}"
    with contextlib.suppress(OSError):
        tables = nft("list tables").stdout
        found = re.findall(rf"^table (inet|ip) ({ours}_(\d+)_(\d+))$", tables, re.MULTILINE)
        for family, table, pid, start in found:
            if look.start_ticks(int(pid)) != int(start):
                nft(f"delete table {family} {table}")


def _marked(token: str) -> Iterator[int]:
    return (pid for pid in procfs.pids() if look.has_mark(pid, f"{MARK}={token}/"))


def _remove(folders: int) -> None:
    with os.fdopen(folders, "rb") as listed:
        for folder in listed.read().split(b"\0")[:-1]:
            shutil.rmtree(folder.decode(), ignore_errors=True)
