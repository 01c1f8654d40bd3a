"""Executing the very code that another process will execute when it reads a clock.

The image that was read back from the process is mapped executable into our own process, at another
address, and its clock_gettime is called between two true readings.  So it is not our arithmetic
that says what the process sees, but its own code, run by this machine's processor.  Only images
whose code is ours are executed.  A true image is the one that our own clock calls execute anyway:
it reaches for data beside it, and would find none elsewhere.
"""

import ctypes
import mmap
import time

from harness.clocks import Glimpse, Readings
from harness.vdso.image import UnreachableError, Vdso


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))

    @property
    def ns(self) -> int:
        return int(self.seconds * 1_000_000_000 + self.nanoseconds)


class Mapped:
    """A lying image, mapped executable in this process until `close`."""

    def __init__(self, vdso: Vdso, image: bytes) -> None:
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        try:
            self._map = mmap.mmap(-1, len(image), prot=protection)
        except OSError as error:
            raise UnreachableError(f"this machine forbids executable memory: {error}") from error
        self._map.write(image)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self._base = ctypes.addressof(self._anchor)
        self._vdso = vdso
        start = self._base + vdso.functions[vdso.machine.clock_gettime].start
        self._clock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(start)

    def read_ns(self, clock: int) -> int:
        """Call its clock_gettime; return nanoseconds.  Raises OSError."""
        found = _Timespec()
        code = self._clock(clock, ctypes.addressof(found))
        if code:
            raise OSError(-code, "clock_gettime")
        return found.ns

    def address(self, function: str) -> int:
        """Return where a function of the vDSO is mapped."""
        return self._base + self._vdso.functions[function].start

    def close(self) -> None:
        """Unmap it."""
        del self._anchor
        self._map.close()


def read(vdso: Vdso, image: bytes) -> Readings:
    """Return what a process with this vDSO reads now.  Raises UnreachableError."""
    if image == vdso.true:
        return Readings(_true(time.CLOCK_REALTIME), _true(time.CLOCK_MONOTONIC), original=True)
    if not vdso.lies(image):
        raise UnreachableError("its vDSO holds code that we do not know: it is left alone")
    mapped = Mapped(vdso, image)
    try:
        return Readings(
            _between(mapped, time.CLOCK_REALTIME), _between(mapped, time.CLOCK_MONOTONIC)
        )
    finally:
        mapped.close()


def _true(clock: int) -> Glimpse:
    now_ns = time.clock_gettime_ns(clock)
    return Glimpse(now_ns, now_ns, now_ns)


def _between(mapped: Mapped, clock: int) -> Glimpse:
    before_ns = time.clock_gettime_ns(clock)
    seen_ns = mapped.read_ns(clock)
    return Glimpse(before_ns, seen_ns, time.clock_gettime_ns(clock))
