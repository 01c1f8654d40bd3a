"""The Linux system calls that make and enter namespaces, without any external program.

Python has `os.unshare` and `os.setns` only from 3.12 on, so libc is called directly everywhere:
one way, three Python versions.
"""

import ctypes
import os
from types import TracebackType

NEWNS = 0x00020000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces of `flags` for fresh ones.  Raises OSError."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int = NEWNET) -> None:
    """Move the calling thread into the namespace of `fd`.  Raises OSError."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Mount a file system, with the arguments of the system call.  Raises OSError."""
    code = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(code, f"mount {target}")


def die_with_parent(signal_number: int) -> None:
    """Ask the kernel to signal this process when the thread that started it dies."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


class Inside:
    """`with Inside(fd):` runs the calling thread in that network namespace.

    A child started inside inherits it.  There must be no `await` in the block: another task would
    run in the wrong namespace.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._home = -1

    def __enter__(self) -> None:
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            setns(self._fd)
        except OSError:
            os.close(self._home)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        setns(self._home)
        os.close(self._home)


def new_network_namespace() -> int:
    """Return a file descriptor that holds a fresh network namespace; it dies with the descriptor.

    The namespace is never bound to a name, so nothing can be left over and runs side by side cannot
    clash.  Raises OSError.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(NEWNET)
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            setns(home)
    finally:
        os.close(home)
