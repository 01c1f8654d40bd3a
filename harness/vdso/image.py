"""The vDSO: the page of code that the kernel maps into every process for reading clocks.

All processes of a machine have the same one, byte for byte, at different addresses.  So our own,
which nobody lies to, says what a true one looks like: where its functions are, what bytes to put
back, and whether some process has one that we do not know (then we leave it alone).
"""

import platform
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.clocks import RATE_ONE, Lie, Moment
from harness.vdso.machines import MACHINES, Machine

_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_BLOCK = struct.Struct("<qqqq")
BLOCKS_BYTES = 4 * _BLOCK.size


class UnreachableError(Exception):
    """A clock that cannot be made to lie; the text says why."""


@dataclass(frozen=True)
class Function:
    """Where a function lies in the vDSO, and how long it is, in bytes."""

    start: int
    size: int


@dataclass(frozen=True)
class Vdso:
    """The true vDSO of this machine, and how to make one that lies."""

    machine: Machine
    true: bytes
    functions: Mapping[str, Function]

    @property
    def blocks_at(self) -> int:
        """Where the parameter blocks lie in a lying vDSO."""
        return self.functions[self.machine.clock_gettime].start + len(self.machine.code)

    def lying(self, blocks: bytes) -> bytes:
        """Return the vDSO that lies as the parameter blocks say."""
        assert len(blocks) == BLOCKS_BYTES
        image = bytearray(self.true)
        home = self.functions[self.machine.clock_gettime].start
        for name, offset in self.machine.symbols.items():
            start = self.functions[name].start
            new = self.machine.jump(home + offset - start) if offset else self.machine.code + blocks
            image[start : start + len(new)] = new
        return bytes(image)

    def lies(self, image: bytes) -> bool:
        """Whether an image is one that `lying` makes: only our code, whatever its parameters."""
        if len(image) != len(self.true):
            return False
        return image == self.lying(image[self.blocks_at : self.blocks_at + BLOCKS_BYTES])

    def inside(self, offset: int) -> bool:
        """Whether a thread at `offset` is in the vDSO, and not just about to enter a function.

        Anywhere in it: the clock functions call others there, and are returned to.
        """
        entries = (function.start for function in self.functions.values())
        return 0 <= offset < len(self.true) and offset not in entries

    def half_read(self, offset: int) -> bool:
        """Whether a thread at `offset` of a lying vDSO knows some of its parameters, not all."""
        first, last = self.machine.half_read
        home = self.functions[self.machine.clock_gettime].start
        return home + first < offset <= home + last


def blocks(wall: tuple[Lie, Moment] | None, monotonic: tuple[Lie, Moment] | None) -> bytes:
    """Return the parameter blocks of two lies, each counted from its moment; None stays true."""
    packed = b""
    for told, lines in ((wall, ("wall_ns", "tai_ns")), (monotonic, ("monotonic_ns", "boot_ns"))):
        for line in lines:
            if told is None:
                packed += _BLOCK.pack(0, 0, RATE_ONE, 0)
            else:
                lie, since = told
                packed += _BLOCK.pack(
                    getattr(since, line), lie.offset_ns, lie.rate_fixed, lie.half_strobe_ns
                )
    return packed


@lru_cache(maxsize=None)  # noqa: UP033 - hosts have Python 3.8
def own() -> Vdso:
    """Return our own vDSO.  Raises UnreachableError that says what is missing on this machine."""
    if sys.platform != "linux":
        raise UnreachableError(f"this is {sys.platform}: only Linux has a vDSO to rewrite")
    machine = MACHINES.get(platform.machine())
    if machine is None:
        known = ", ".join(MACHINES)
        raise UnreachableError(
            f"there is no machine code for {platform.machine()} yet (there is for {known})"
        )
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            with Path("/proc/self/mem").open("rb", buffering=0) as memory:
                memory.seek(start)
                return parse(memory.read(end - start), machine)
    raise UnreachableError("this process has no vDSO (the kernel may run with vdso=0)")


def parse(image: bytes, machine: Machine) -> Vdso:
    """Find the clock functions in an image.  Raises UnreachableError when there is no room."""
    functions = _functions(image, machine)
    sizes = {name: len(machine.jump(0)) for name in machine.symbols}
    sizes[machine.clock_gettime] = len(machine.code) + BLOCKS_BYTES
    for name, needed in sizes.items():
        found = functions.get(name)
        if found is None:
            raise UnreachableError(f"the vDSO of this kernel has no {name}")
        if found.size < needed:
            raise UnreachableError(
                f"{name} in the vDSO of this kernel has {found.size} bytes, {needed} are needed"
            )
    return Vdso(machine, image, {name: functions[name] for name in sizes})


def _functions(image: bytes, machine: Machine) -> dict[str, Function]:
    """Read the dynamic symbols of an ELF image; nothing in it is trusted to fit."""
    if image[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", image, 18)[0] != machine.elf:
        raise UnreachableError("the vDSO is no ELF image of this machine")
    (sections_at,) = struct.unpack_from("<Q", image, 40)
    (count,) = struct.unpack_from("<H", image, 60)
    found: dict[str, Function] = {}
    try:
        sections = [_SECTION.unpack_from(image, sections_at + i * 64) for i in range(count)]
        for section in sections:
            if section[1] != _DYNSYM:
                continue
            names_at = sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, _, value, size = _SYMBOL.unpack_from(image, at)
                start = names_at + name
                text = image[start : image.index(b"\0", start)].decode("ascii", "replace")
                found[text] = Function(value, size)
    except (struct.error, ValueError, IndexError) as error:
        raise UnreachableError(f"the symbols of the vDSO cannot be read: {error}") from error
    return found
