"""The one event type of a history.

An operation is invoked, and later completes in one of three ways: `ok` (it happened), `fail` (it
certainly did not happen and never will) or `info` (nobody knows: it may take effect at any later
time, or never).  A time-out of a mutating call is `info`.  This is Jepsen's vocabulary, and the
rule that decides verdicts: a `fail` that was not certain turns a correct system into a liar.
"""

from typing import Any, Literal

import msgspec

OpType = Literal["invoke", "ok", "fail", "info"]
Process = int | str


class Op(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event: an invocation or its completion.

    `process` is a logical, sequential client: after an `info` it is retired and its worker goes on
    under a new number.  `worker` is the operating-system process that acted (a node name); imported
    histories may lack it.  `token` is the fencing token used (invocation) or received (completion).
    `time_ns` counts nanoseconds from the start of the run on the controller's monotonic clock.
    `value` is any JSON value; text from a target that is not valid UTF-8 arrives escaped.
    """

    process: Process
    type: OpType
    f: str
    key: str | None = None
    value: Any = None
    token: int | None = None
    time_ns: int
    error: str | None = None
    worker: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Op)


def encode(op: Op) -> bytes:
    """Return the op as one JSON line, newline included."""
    return _encoder.encode(op) + b"\n"


def decode(line: bytes) -> Op:
    """Return the op of one JSON line; raises `msgspec.DecodeError` or `msgspec.ValidationError`."""
    return _decoder.decode(line)
