"""The machine code that lies: assembled from its source, and executed on numbers of every kind."""

import ctypes
import platform
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clocks import Glimpse, Lie, Moment
from harness.vdso import image as images
from harness.vdso.halt import pointers
from harness.vdso.image import BLOCKS_BYTES, UnreachableError, Vdso, blocks, own, parse
from harness.vdso.machines import MACHINES, Machine
from harness.vdso.memory import differences
from harness.vdso.trial import Mapped, read
from tests.support_clocks import needs_clocks

SOURCES = Path(images.__file__).parent
YEAR_NS = 365 * 86400 * 10**9
SYSCALL, NO_SYSCALL = b"\x0f\x05\x85\xc0", b"\x31\xc0\x85\xc0"  # xor eax, eax
clocks = st.sampled_from(
    [time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME, time.CLOCK_TAI, 5, 6, 8, 9]
)
true_ns = st.integers(-(10**9), 10 * YEAR_NS) | st.integers(55 * YEAR_NS, 70 * YEAR_NS)
lies = st.builds(
    Lie,
    offset_s=st.floats(-3e8, 3e8) | st.sampled_from([0.0, 30.0, -30.0, 1e-9, 3600.0]),
    rate=st.floats(0, 10) | st.sampled_from([0.0, 1.0, 2.0, 0.5, 10.0]),
    strobe_s=st.just(0.0) | st.floats(0.001, 1000),
)


class Timespec(ctypes.Structure):
    """Seconds, and the rest in nanoseconds or microseconds."""

    _fields_ = (("seconds", ctypes.c_int64), ("rest", ctypes.c_int64))


def moment(at_ns: int) -> Moment:
    return Moment(at_ns, at_ns, at_ns, at_ns)


@pytest.fixture(scope="module")
def vdso() -> Vdso:
    return own()


@pytest.fixture(scope="module")
def arithmetic(vdso: Vdso) -> Iterator["Arithmetic"]:
    found = Arithmetic(vdso)
    yield found
    found.close()


class Arithmetic:
    """The code with its system call taken out: the caller says what the true time is."""

    def __init__(self, vdso: Vdso) -> None:
        self.vdso = vdso
        honest = vdso.lying(blocks(None, None))
        home = vdso.functions[vdso.machine.clock_gettime].start
        at = honest.index(SYSCALL, home)
        image = honest[:at] + NO_SYSCALL + honest[at + 4 :]
        self.mapped = Mapped(vdso, image)
        self.memory = self.mapped.address(vdso.machine.clock_gettime) - home
        address = self.mapped.address
        int_p = ctypes.c_void_p
        self.clock_gettime = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, int_p)(
            address("__vdso_clock_gettime")
        )
        self.gettimeofday = ctypes.CFUNCTYPE(ctypes.c_int, int_p, int_p)(
            address("__vdso_gettimeofday")
        )

    def lie(self, packed: bytes) -> None:
        ctypes.memmove(self.memory + self.vdso.blocks_at, packed, BLOCKS_BYTES)

    def at(self, true_ns: int) -> Timespec:
        return Timespec(*divmod(true_ns, 10**9))

    def close(self) -> None:
        self.mapped.close()


# ------------------------------------------------------------------------------- source and bytes


@pytest.mark.parametrize("name", MACHINES)
def test_the_bytes_are_what_the_assembler_makes_of_the_source(name: str, tmp_path: Path) -> None:
    if name != platform.machine() or not all(map(shutil.which, ("as", "objcopy", "nm"))):
        pytest.skip(f"no assembler for {name} here")
    machine = MACHINES[name]
    made, flat = tmp_path / "made.o", tmp_path / "flat"
    source = SOURCES / machine.source
    subprocess.run(["as", "--keep-locals", "-o", made, source], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, flat], check=True)
    assert flat.read_bytes() == machine.code + bytes(BLOCKS_BYTES)
    listed = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    labels = {line.split()[2]: int(line.split()[0], 16) for line in listed.splitlines()}
    assert labels[".Lblocks"] == len(machine.code)
    assert labels[".Lblocks"] % 8 == 0
    assert machine.half_read == (labels[".Lfirst"], labels[".Llast"])
    entries = [labels[".Lclock"], labels[".Lday"], labels[".Lsecond"]]
    assert list(machine.symbols.values()) == entries


def test_no_name_is_left_to_a_linker() -> None:
    """A global name would leave a hole for a relocation in the code."""
    for machine in MACHINES.values():
        text = (SOURCES / machine.source).read_text()
        assert ".globl" not in text
        assert ".global" not in text


# ------------------------------------------------------------------------------- arithmetic


@needs_clocks
@given(clock=clocks, true=true_ns, since=true_ns, lie=lies)
def test_a_reading_is_the_lies_own_to_the_nanosecond(
    arithmetic: Arithmetic, clock: int, true: int, since: int, lie: Lie
) -> None:
    if abs(true - since) > 20 * YEAR_NS:
        since = true - 20 * YEAR_NS
    arithmetic.lie(blocks((lie, moment(since)), (lie, moment(since))))
    seen = arithmetic.at(true)
    assert arithmetic.clock_gettime(clock, ctypes.addressof(seen)) == 0
    assert 0 <= seen.rest < 10**9
    assert seen.seconds * 10**9 + seen.rest == lie.reading_ns(true, since)


@needs_clocks
@given(true=true_ns, lie=lies)
def test_gettimeofday_is_the_wall_clock_in_microseconds(
    arithmetic: Arithmetic, true: int, lie: Lie
) -> None:
    since = true - 10**9
    arithmetic.lie(blocks((lie, moment(since)), None))
    seen = arithmetic.at(true)
    assert arithmetic.gettimeofday(ctypes.addressof(seen), None) == 0
    seconds, rest = divmod(lie.reading_ns(true, since), 10**9)
    assert (seen.seconds, seen.rest) == (seconds, rest // 1000)


@needs_clocks
def test_gettimeofday_takes_a_time_zone_and_nothing(arithmetic: Arithmetic) -> None:
    zone = ctypes.c_uint64(2**64 - 1)
    assert arithmetic.gettimeofday(None, ctypes.addressof(zone)) == 0
    assert zone.value == 0
    assert arithmetic.gettimeofday(None, None) == 0


@needs_clocks
@pytest.mark.parametrize("clock", [-1, -6, 2, 3, 4, 10, 12, 16, 2**31 - 1])
def test_other_clocks_stay_true(arithmetic: Arithmetic, clock: int) -> None:
    lie = Lie(3600.0, 10.0)
    arithmetic.lie(blocks((lie, moment(0)), (lie, moment(0))))
    seen = Timespec(12, 34)
    assert arithmetic.clock_gettime(clock, ctypes.addressof(seen)) == 0
    assert (seen.seconds, seen.rest) == (12, 34)


@needs_clocks
def test_the_two_lines_of_time_lie_apart(arithmetic: Arithmetic) -> None:
    since = Moment(wall_ns=10**18, tai_ns=10**18 + 37 * 10**9, monotonic_ns=5, boot_ns=7)
    arithmetic.lie(blocks((Lie(1.0), since), (Lie(rate=0.0), since)))
    expected = {0: 1, 5: 1, 11: 1, 1: -3, 6: -3, 7: -3, 9: -3}
    for clock, error_s in expected.items():
        line = {0: since.wall_ns, 5: since.wall_ns, 11: since.tai_ns, 7: since.boot_ns}
        true = line.get(clock, since.boot_ns if clock == 9 else since.monotonic_ns) + 3 * 10**9
        seen = arithmetic.at(true)
        arithmetic.clock_gettime(clock, ctypes.addressof(seen))
        assert seen.seconds * 10**9 + seen.rest - true == error_s * 10**9, clock


# ------------------------------------------------------------------------------- the real thing


@needs_clocks
def test_an_image_is_executed_between_two_true_readings(vdso: Vdso) -> None:
    since = Moment.now()
    wall, monotonic = Lie(-86400.0), Lie(rate=2.0)
    found = read(vdso, vdso.lying(blocks((wall, since), (monotonic, since))))
    assert found.wall is not None
    assert found.monotonic is not None
    assert found.wall.fits(wall, since.wall_ns, within_ns=10_000)
    assert found.monotonic.fits(monotonic, since.monotonic_ns, within_ns=10_000)
    assert not found.wall.fits(Lie(), 0, within_ns=1_000_000_000)
    assert not found.original
    true = read(vdso, vdso.true)
    assert true.original
    assert true.wall is not None
    assert true.wall.error_s == 0


@needs_clocks
def test_time_and_an_error_come_through(vdso: Vdso) -> None:
    since = Moment.now()
    mapped = Mapped(vdso, vdso.lying(blocks((Lie(1e6), since), None)))
    try:
        time_of = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(mapped.address("__vdso_time"))
        stored = ctypes.c_int64()
        seen = time_of(ctypes.addressof(stored))
        assert seen == stored.value
        assert seen - time.time() == pytest.approx(1e6, abs=2)
        assert time_of(None) - time.time() == pytest.approx(1e6, abs=2)
        with pytest.raises(OSError, match=r"\[Errno 22\]"):
            mapped.read_ns(99)
    finally:
        mapped.close()


@needs_clocks
def test_code_that_is_not_ours_is_never_executed(vdso: Vdso) -> None:
    lying = bytearray(vdso.lying(blocks(None, None)))
    lying[vdso.functions[vdso.machine.clock_gettime].start + 4] ^= 1
    assert not vdso.lies(bytes(lying))
    assert not vdso.lies(vdso.true)
    with pytest.raises(UnreachableError, match="do not know"):
        read(vdso, bytes(lying))


# ------------------------------------------------------------------------------- other layouts


@needs_clocks
def test_a_function_without_room_is_refused(vdso: Vdso) -> None:
    found = vdso.functions[vdso.machine.clock_gettime]
    entry = struct.pack("<QQ", found.start, found.size)
    small = vdso.true.replace(entry, struct.pack("<QQ", found.start, 200))
    with pytest.raises(UnreachableError, match="has 200 bytes, 360 are needed"):
        parse(small, vdso.machine)


@needs_clocks
def test_an_image_without_the_function_or_of_another_kind_is_refused(vdso: Vdso) -> None:
    renamed = vdso.true.replace(b"__vdso_time\0", b"__vdso_tame\0")
    with pytest.raises(UnreachableError, match="has no __vdso_time"):
        parse(renamed, vdso.machine)
    with pytest.raises(UnreachableError, match="no ELF image of this machine"):
        parse(vdso.true[:18] + struct.pack("<H", 183) + vdso.true[20:], vdso.machine)
    with pytest.raises(UnreachableError, match="cannot be read"):
        parse(vdso.true[:2048], vdso.machine)


def test_an_architecture_without_code_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UnreachableError, match="no machine code for riscv64 yet"):
        own.__wrapped__()


def test_only_what_differs_is_written() -> None:
    now = bytes(64)
    wanted = bytes(8) + b"a" * 16 + bytes(24) + b"bb" + bytes(14)
    assert differences(now, wanted) == [(8, 24), (48, 56)]
    assert differences(now, now) == []


# ------------------------------------------------------------------------------- stacks


def test_a_return_address_on_a_stack_is_found() -> None:
    base, length = 0x7F12_FFFF_F000, 0x2000  # over an edge of 64 KiB
    stack = 0x7FFC_0000_0010
    inside = [base + 0x900, base + 0x1800]
    outside = [base - 1, base + length, 0x1234_7F12_FFFF_F900, inside[0] << 8 & (2**64 - 1)]
    data = struct.pack("<10Q", 0, inside[0], *outside, inside[1], 7, 8, inside[0])
    found = dict(pointers(data, stack, base, length))
    assert set(found) == set(inside)
    assert found[inside[1]] == struct.pack("<2Q", 7, 8)
    assert not set(pointers(b"\0\0\0\0" + data, stack, base, length))  # not on a word's place


def test_a_signal_frame_is_told_from_what_a_call_left_behind() -> None:
    interrupted = MACHINES["x86_64"].interrupted
    assert interrupted(struct.pack("<QHHHH", 0x246, 0x33, 0, 0, 0x2B))
    assert not interrupted(struct.pack("<2Q", 0x246, 0))
    assert not interrupted(struct.pack("<QH6x", 0x44, 0x33))
    assert not interrupted(struct.pack("<QH6x", 0x7FFC_0000_0246, 0x33))


# ------------------------------------------------------------------------------- lies as data


@given(lie=lies, since=true_ns, after=st.integers(0, 10**15))
def test_the_arithmetic_is_what_it_says(lie: Lie, since: int, after: int) -> None:
    exact = since + after * Fraction(lie.rate_fixed, 2**32)
    assert 0 <= exact - lie.without_jump_ns(since + after, since) < 1
    assert lie.jump_ns(since + after, since) in (0, lie.offset_ns)
    assert lie.jump_ns(since, since) == lie.offset_ns


def test_a_strobe_is_there_in_the_first_half_of_its_period() -> None:
    lie = Lie(offset_s=10.0, strobe_s=2.0)
    jumps = [lie.jump_ns(round(at_s * 1e9), 0) // 10**9 for at_s in (0, 0.9, 1.1, 1.9, 2.1, 3.1)]
    assert jumps == [10, 10, 0, 0, 10, 0]


def test_a_glimpse_fits_by_its_grain_and_its_strobe() -> None:
    second = 10**9
    coarse = Glimpse(10 * second + 5, 40 * second, 10 * second + 9, grain_ns=second)
    assert coarse.fits(Lie(30.0), 0, 0)
    assert coarse.fits(Lie(30.9), 0, 0)
    assert not coarse.fits(Lie(29.0), 0, 0)
    assert coarse.error_s == pytest.approx(30.5)
    turning = Lie(offset_s=5.0, strobe_s=2.0)
    for seen_s in (1.0, 6.0):  # the jump ends at 1 s: both are right
        glimpse = Glimpse(second - 1000, int(seen_s * second), second + 1000)
        assert glimpse.fits(turning, 0, 0)
    assert not Glimpse(second - 1000, 3 * second, second + 1000).fits(turning, 0, 0)


def test_lies_are_told_in_words() -> None:
    assert str(Lie(-30.0)) == "-30 s"
    assert str(Lie(rate=0.0)) == "frozen"
    assert str(Lie(4.0, 2.0, 0.5)) == "+4 s, at 2 times the true speed, forth and back every 0.5 s"
    assert str(Lie()) == "true"


def test_every_machine_has_its_source() -> None:
    for machine in MACHINES.values():
        assert isinstance(machine, Machine)
        assert (SOURCES / machine.source).is_file()
