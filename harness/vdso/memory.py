"""The memory of another process, through /proc/PID/mem: no ptrace, and nothing loaded into it.

The kernel lets the owner of a process write its code pages there as it does for a debugger's
breakpoints: the process gets a private copy of the page, and nobody else sees the change.  The
machine's policy may forbid it (Yama, `proc_mem.force_override`); the error then says so.
"""

import ctypes
import os
import struct
from pathlib import Path
from types import TracebackType

from harness.process import ProcessId
from harness.procfs import read, start_ticks
from harness.vdso.image import UnreachableError, Vdso

_SYSINFO_EHDR = 33
_KCMP_VM = 1
_PAIR = struct.Struct("<QQ")
_libc = ctypes.CDLL(None, use_errno=True)


class GoneError(Exception):
    """The process has ended meanwhile."""


def vdso_address(pid: int) -> int:
    """Return where the vDSO of a process is mapped; it moves with every exec.

    Raises GoneError, UnreachableError.
    """
    try:
        vector = read(f"/proc/{pid}/auxv")
    except PermissionError as error:
        raise UnreachableError(f"process {pid} cannot be looked into: {error}") from error
    if not vector:
        raise GoneError  # a process that is about to end has no memory any more
    for at in range(0, len(vector) - _PAIR.size + 1, _PAIR.size):
        key, value = _PAIR.unpack_from(vector, at)
        if key == _SYSINFO_EHDR:
            return int(value)
    raise UnreachableError(f"process {pid} has no vDSO")


def same_time_namespace(pid: int) -> bool:
    """Whether the monotonic clock of a process counts from where ours does."""
    try:
        return os.stat(f"/proc/{pid}/ns/time").st_ino == os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return True  # a kernel without time namespaces, or a process that is gone


def shares_memory(pid: int, number: int) -> bool:
    """Whether a process still uses the memory of its parent, as after vfork and before exec.

    Such a process must be left alone: what is written into it is written into the parent, whose
    threads may be running.  `number` is that of the system call kcmp.  A process that does not
    share its memory will never do so, so the answer no cannot grow old.  Raises UnreachableError.
    """
    parent = _parent(pid)
    if parent == 0:
        return False  # it lives outside of our pid namespace
    answer = _libc.syscall(number, pid, parent, _KCMP_VM, 0, 0)
    if answer < 0:
        error = ctypes.get_errno()
        if not Path(f"/proc/{pid}").exists():
            raise GoneError
        if not Path(f"/proc/{parent}").exists():
            return False
        raise UnreachableError(f"process {pid} cannot be looked into: kcmp: {os.strerror(error)}")
    return bool(answer == 0)


def _parent(pid: int) -> int:
    data = read(f"/proc/{pid}/stat")
    if data is None:
        raise GoneError
    return int(data[data.rindex(b")") + 2 :].split()[1])


class Memory:
    """The open memory of one process, with its vDSO; stays with it even if the pid is reused.

    Raises GoneError, UnreachableError, in each method.
    """

    def __init__(self, process: ProcessId, vdso: Vdso) -> None:
        self.pid = process.pid
        self.base = vdso_address(process.pid)
        self.length = len(vdso.true)
        try:
            self._fd = os.open(f"/proc/{process.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError) as error:
            raise GoneError from error
        except OSError as error:
            raise UnreachableError(f"process {self.pid} cannot be opened: {error}") from error
        if start_ticks(process.pid) != process.start:
            os.close(self._fd)
            raise GoneError

    def read(self, address: int, length: int) -> bytes:
        """Return the bytes at `address`, fewer where the mapping ends."""
        try:
            return os.pread(self._fd, length, address)
        except OSError:
            return b""  # nothing is mapped there

    def image(self) -> bytes:
        """Return the vDSO as the process has it."""
        image = self.read(self.base, self.length)
        if len(image) == self.length:
            return image
        if vdso_address(self.pid) != self.base:
            raise GoneError  # it called exec meanwhile, and will be found anew
        raise UnreachableError(f"process {self.pid} has no vDSO like ours")

    def rewrite(self, now: bytes, wanted: bytes) -> None:
        """Turn the vDSO from `now` into `wanted`, and look that it is."""
        try:
            for start, end in differences(now, wanted):
                os.pwrite(self._fd, wanted[start:end], self.base + start)
        except OSError as error:
            raise UnreachableError(
                f"the kernel does not let us write into process {self.pid}: {error}"
            ) from error
        if self.image() != wanted:
            raise UnreachableError(f"what was written into process {self.pid} is not there")

    def __enter__(self) -> "Memory":  # noqa: PYI034 - hosts have Python 3.8
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)


def differences(now: bytes, wanted: bytes) -> list[tuple[int, int]]:
    """Return the ranges of 8-byte words in which two images of one length differ."""
    words = zip(memoryview(now).cast("Q"), memoryview(wanted).cast("Q"))  # noqa: B905 - 3.8
    runs: list[tuple[int, int]] = []
    for at in (8 * i for i, (old, new) in enumerate(words) if old != new):
        start = runs.pop()[0] if runs and runs[-1][1] == at else at
        runs.append((start, at + 8))
    return runs
