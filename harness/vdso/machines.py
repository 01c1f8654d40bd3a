"""The machine code that lies, one entry for each processor architecture.

The code lies here as bytes, so that nothing has to be assembled on a user's machine; its source
stands beside this file (`x86_64.S`) and a test assembles and compares.  An architecture that is not
in the table cannot be lied to, and says so.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What is known of one architecture.

    `code` replaces the function `symbols[0]` of the vDSO; it ends where its parameter blocks begin.
    The entries of the other functions become a jump into it: `symbols` gives for each function the
    offset of its code.  `jump(distance)` is that jump, measured from its own first byte.
    A thread behind `half_read[0]` and not behind `half_read[1]` has read some of its parameters and
    not yet all.  `interrupted(behind)` tells, from the 16 bytes behind an address on a stack,
    whether a signal handler will return to it.  `elf` is the number of the machine in an ELF
    header, `kcmp` that of the system call.
    """

    source: str
    code: bytes
    symbols: Mapping[str, int]
    jump: Callable[[int], bytes]
    half_read: tuple[int, int]
    interrupted: Callable[[bytes], bool]
    elf: int
    kcmp: int

    @property
    def clock_gettime(self) -> str:
        """The function that the code is written over."""
        return next(name for name, offset in self.symbols.items() if offset == 0)


def _x86_jump(distance: int) -> bytes:
    """`endbr64; jmp distance`: the entry may be the target of an indirect call."""
    endbr, opcode = b"\xf3\x0f\x1e\xfa", b"\xe9"
    length = len(endbr) + 5
    return endbr + opcode + struct.pack("<i", distance - length)


def _x86_interrupted(behind: bytes) -> bool:
    """In a signal frame the flags follow, with interrupts on, and the segment of user code."""
    flags, segment = struct.unpack("<QH", behind[:10])
    return bool(flags < 1 << 32 and flags & 0x202 == 0x202 and segment == 0x33)


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
        source="x86_64.S",
        code=bytes.fromhex(
            "f30f1efab8e40000000f0585c0757883ff0b77734c8d05cd00000089f9410fb68c08f3ff"
            "ffff84c9785d4901c84c690e00ca9a3b4c034e084d2b084c89c849f76810480facd02049"
            "03004989c2498b48184885c9740c4c89c8489948f7f9a80175044d0350084c89d04899b9"
            "00ca9a3b48f7f94885d279064801ca48ffc84889064889560831c0c34885f6740748c706"
            "000000004885ff741e4889fe5731ffe85cffffff5f488b470831d2b9e803000048f7f148"
            "89470831c0c3574883ec1031ff4889e6e837ffffff488b04244883c4105f4885ff740348"
            "8907c30040ffffff0040600060ff2090"
        ),
        symbols={"__vdso_clock_gettime": 0, "__vdso_gettimeofday": 0x88, "__vdso_time": 0xBA},
        jump=_x86_jump,
        half_read=(0x38, 0x62),
        interrupted=_x86_interrupted,
        elf=62,
        kcmp=312,
    ),
}
