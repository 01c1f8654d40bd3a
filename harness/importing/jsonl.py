"""Our own histories: one op as a JSON object a line, append-only.

A last line without its end is where a run was cut: what is before it counts.  A history written by
hand may leave out `time_ns` in every line; then the order of the lines is the order of the events.
"""

from collections.abc import Mapping
from typing import IO

import msgspec

from harness.errors import MalformedHistoryError
from harness.history import History
from harness.importing.source import lines
from harness.op import Op

TIME_MAX_NS = 1 << 60


class _Untimed(Op, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An op whose time is its place."""

    time_ns: int = -1


def read_jsonl(stream: IO[bytes], names: Mapping[str, str]) -> History:
    """Read a history; `names` maps its names of operations to ours.

    Raises MalformedHistoryError.
    """
    timed = msgspec.json.Decoder(Op)
    untimed = msgspec.json.Decoder(_Untimed)
    decoder: msgspec.json.Decoder[Op] | msgspec.json.Decoder[_Untimed] = timed
    ops: list[Op] = []
    cut = False
    for number, line, whole in lines(stream):
        if not whole:
            cut = True
            break
        if number == 1 and b'"time_ns"' not in line:
            decoder = untimed
        try:
            op: Op = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedHistoryError(number, f"no op: {error}") from error
        if abs(op.time_ns) >= TIME_MAX_NS:
            raise MalformedHistoryError(number, f"time_ns {op.time_ns} is no time of a run")
        if decoder is untimed:
            if op.time_ns != -1:
                raise MalformedHistoryError(number, "a time, where the lines before have none")
            op = msgspec.structs.replace(op, time_ns=number)
        if op.f in names:
            op = msgspec.structs.replace(op, f=names[op.f])
        ops.append(op)
    return History(ops, cut)
