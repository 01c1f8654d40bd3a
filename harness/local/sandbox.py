"""The chain of processes around a run, built so that the kernel cleans up.

::

    outer     what the user started: waits, hands signals on, judges if the rest dies
    helper    left the machine's namespaces; waits          dies with outer (PDEATHSIG)
    init      pid 1 of the sandbox; reaps; hands signals on dies with helper, and at outer's end
    harness   the run                                       init ends when it ends

When init ends, for whatever reason, the kernel kills every process of the pid namespace, stopped
ones and those that called setsid included; mounts and network namespaces go with the last of them.
So whichever process of the chain is killed with SIGKILL, nothing is left.

The helper is a fresh interpreter (`python -m harness.local.sandbox`), never a fork of the caller:
the caller may have threads, and forking those is how deadlocks are made.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.ledger import state_home
from harness.local import namespaces as ns
from harness.released import cache_home

UNAVAILABLE = 125
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class StepFailed(Exception):  # noqa: N818 - it says what happened, not what class it is
    """A step of entering the sandbox failed: `step` in words, `error` the number of the OSError."""

    step: str
    error: int
    text: str


def enter() -> None:
    """Leave the machine's namespaces.  The next child is pid 1.  Raises StepFailed."""
    uid, gid = os.geteuid(), os.getegid()
    flags = ns.NEWPID | ns.NEWNET | ns.NEWNS | ns.NEWUTS | ns.NEWIPC
    user = uid != 0
    names = "pid, network, mount, uts and ipc" + (" and user" if user else "")
    with _step(f"unshare: new {names} namespaces"):
        ns.unshare(flags | (ns.NEWUSER if user else 0))
    if not user:
        return
    maps = (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"))
    for name, text in maps:
        with _step(f"write /proc/self/{name}"):
            Path(f"/proc/self/{name}").write_text(text)


def private_mounts() -> None:
    """Give the sandbox its own /proc and an empty, private /dev/shm for the data of the servers."""
    with _step("make mounts private"):
        ns.mount("none", "/", None, ns.MS_REC | ns.MS_PRIVATE)
    with _step("mount a private /proc"):
        ns.mount("proc", "/proc", "proc", ns.MS_NOSUID | ns.MS_NODEV | ns.MS_NOEXEC)
    with _step("mount a private /dev/shm"):
        ns.mount("tmpfs", "/dev/shm", "tmpfs", ns.MS_NOSUID | ns.MS_NODEV, "mode=1777")


class _step(contextlib.AbstractContextManager["_step"]):  # noqa: N801 - reads as a statement
    def __init__(self, words: str) -> None:
        self.words = words

    def __exit__(self, _kind: object, value: BaseException | None, _trace: object) -> None:
        if isinstance(value, OSError):
            raise StepFailed(self.words, value.errno or 0, str(value)) from value


def run_helper(main: Callable[[], int], lifeline: int, complaints: int) -> int:
    """Be the helper: enter the sandbox, start init, wait for it, and return its exit code.

    `lifeline` is the read end of a pipe that outer holds open; `complaints` is where a failed step
    is written as JSON.  `main` becomes the harness process.
    """
    ns.die_with_parent(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)  # outer held them back across the start
    try:
        enter()
        init = os.fork()
        if init == 0:
            os._exit(_init(main, lifeline, complaints))
    except StepFailed as failed:
        complain(failed, complaints)
        return UNAVAILABLE
    os.close(complaints)
    for number in _FORWARDED:
        signal.signal(number, lambda sig, _frame: os.kill(init, sig))
    _, status = os.waitpid(init, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def run_unboxed(main: Callable[[], int]) -> int:
    """Be the harness of a run that lives in no sandbox: `launch` is outer, and both die together.

    Whoever lives so needs somebody else to undo what it did when it is killed.
    """
    lifeline, complaints = descriptors()
    ns.die_with_parent(signal.SIGKILL)
    if select.select([lifeline], [], [], 0)[0]:
        return UNAVAILABLE  # outer died before the line above took effect
    os.close(complaints)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)  # outer held them back across the start
    return main()


def complain(failed: StepFailed, fd: int) -> None:
    """Write a failed step as JSON to `fd`."""
    record = {"step": failed.step, "errno": failed.error, "text": failed.text}
    os.write(fd, json.dumps(record).encode())


def _init(main: Callable[[], int], lifeline: int, complaints: int) -> int:
    """Be pid 1: start the harness, reap, and end when the harness or outer ends."""
    ns.die_with_parent(signal.SIGKILL)
    if select.select([lifeline], [], [], 0)[0]:
        return 1  # outer died before the line above took effect
    try:
        private_mounts()
    except StepFailed as failed:
        complain(failed, complaints)
        return UNAVAILABLE
    os.close(complaints)
    wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    harness = os.fork()
    if harness == 0:
        os.close(lifeline)
        os.close(wake_r)
        os.close(wake_w)
        os._exit(_guarded(main))
    for number in _FORWARDED:
        signal.signal(number, lambda sig, _frame: os.kill(harness, sig))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    while True:
        code = _reap(harness)
        if code is not None:
            return code
        ready, _, _ = select.select([wake_r, lifeline], [], [])
        if lifeline in ready:
            return 137
        with contextlib.suppress(BlockingIOError):
            os.read(wake_r, 4096)


def _reap(harness: int) -> int | None:
    """Reap all dead children; return the harness's exit code once it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1
        if pid == 0:
            return None
        if pid == harness:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _guarded(main: Callable[[], int]) -> int:
    """Run `main` as a process of its own; never return into the forked parent's stack."""
    try:
        return main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the last line of defence prints and exits
        import traceback

        traceback.print_exc()
        return 255
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()


@dataclass(frozen=True)
class Left:
    """How a sandbox ended: its exit code, and the step that failed when it never began."""

    code: int
    failed: StepFailed | None = None


def launch(
    module: str, *arguments: str, stdout: int | None = None, bound_s: float | None = None
) -> Left:
    """Be outer: run `python -m module arguments` as a sandbox and wait for its end.

    The module's `__main__` calls `run_helper` with the two descriptors that it is given by the
    environment.  Signals that this process receives are handed on; the child has a session of its
    own, so that Ctrl-C on a terminal arrives once and not once a process.  After `bound_s` seconds
    the sandbox is ended.
    """
    life_r, life_w = os.pipe2(os.O_CLOEXEC)
    complaint_r, complaint_w = os.pipe2(os.O_CLOEXEC)
    environment = os.environ | {
        "WINKLE_LIFELINE": f"{life_r},{complaint_w}",
        # In there an ordinary user looks like root, and would look in root's home.
        "XDG_STATE_HOME": str(state_home()),
        "XDG_CACHE_HOME": str(cache_home()),
    }
    # A signal between the start and the handlers would orphan the child for a moment; hold it back.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            pass_fds=(life_r, complaint_w),
            start_new_session=True,
            env=environment,
        )
        previous = _hand_on(child.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        os.close(life_r)
        os.close(complaint_w)
    try:
        code = _wait(child, bound_s)
        complaint = _read_all(complaint_r)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(life_w)
        os.close(complaint_r)
    if complaint:
        record = json.loads(complaint)
        return Left(code, StepFailed(record["step"], record["errno"], record["text"]))
    return Left(code)


def _wait(child: "subprocess.Popen[bytes]", bound_s: float | None) -> int:
    """Wait for the end of the helper; past the bound it is ended, and the sandbox with it."""
    try:
        return child.wait(bound_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _hand_on(pid: int) -> dict[signal.Signals, "signal._HANDLER"]:
    """Forward signals to the child; outside of the main thread Python has no say in signals.

    Whoever started us with `nohup` wants the run to outlive the terminal.
    """
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [number for number in _FORWARDED if number != signal.SIGHUP or not nohup]

    def forward(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    try:
        return {number: signal.signal(number, forward) for number in numbers}
    except ValueError:
        return {}


def _read_all(fd: int) -> bytes:
    data = b""
    while chunk := os.read(fd, 65536):
        data += chunk
    return data


def descriptors() -> tuple[int, int]:
    """Return the lifeline and complaint descriptors that outer handed to this helper."""
    lifeline, complaints = os.environ.pop("WINKLE_LIFELINE").split(",")
    return int(lifeline), int(complaints)
