"""The worker protocol: JSON lines on a worker's standard input and output.

A worker is a process in any language that speaks it; our Python SDK (`harness.worker`) speaks it
for targets written as Python classes.  The controller sends one `hello`, then `op`s, one at a
time; the worker answers each with one `done`.  A worker that wants to renew a lease in the
background asks first: the controller records the invocation and answers `go`, so that the record
of an invocation is never later than its call.  `phase` and `belief` may be sent at any time.  An
op or a go may carry `stop_at`: the worker then sends SIGSTOP to itself exactly at that phase,
right after it said so. The end of standard input ends the worker.  Standard error goes to the
worker's log.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

LINE_BYTES_MAX = 16 * 1024 * 1024
VERSION = 1


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="hello"):
    """First line to a worker: what to connect to.

    `lock` and `store` name targets as in the run file; `servers` gives each server's
    `name`, `address`, `port` and `role` under the part (`lock`, `store`) that it belongs to, and
    `secrets` what a target that has some needs to connect: texts by name, likewise.
    """

    protocol: int = VERSION
    worker: str
    lock: Mapping[str, Any]
    store: Mapping[str, Any]
    servers: Mapping[str, list[Mapping[str, Any]]]
    secrets: Mapping[str, Mapping[str, str]] = {}
    ttl_s: float
    op_timeout_s: float


class SendOp(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="op"):
    """An operation to perform now.  `id` is echoed in the answer."""

    id: int
    f: str
    key: str | None = None
    value: Any = None
    token: int | None = None
    stop_at: str | None = None


class Go(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="go"):
    """The answer to an `ask`: recorded as op `id`; perform it now and answer with `done`."""

    id: int
    ask: int
    stop_at: str | None = None


class ReadClock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="clock"):
    """Read your clocks now and answer with `clock`; only sent to a worker with that ability."""

    id: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ready"):
    """The worker is connected.

    `abilities`: `stop_at` when it can stop itself at a phase, `clock` when it tells its clocks.
    """

    protocol: int = VERSION
    abilities: list[str] = []


class Done(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="done"):
    """How op `id` ended.  `fail` only when the error proves that nothing happened."""

    id: int
    result: Literal["ok", "fail", "info"]
    value: Any = None
    token: int | None = None
    error: str | None = None


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ask"):
    """The worker wants to perform an operation on its own account, beside the op it may be in."""

    ask: int
    f: str
    key: str | None = None
    token: int | None = None


class Phase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="phase"):
    """The worker passes a phase of op `id`.

    `stopping` says that it now stops itself there, and `resumed`, in a second message, that it has
    done so and goes on: until then it is resumed again and again.
    """

    phase: str
    id: int
    key: str | None = None
    token: int | None = None
    stopping: bool = False
    resumed: bool = False


class Belief(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="belief"):
    """What the worker's client thinks about a lock: held or not, and for how many seconds more."""

    key: str
    token: int | None = None
    holds: bool
    left_s: float | None = None
    why: str | None = None


class ClockRead(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="clock"):
    """What the worker's clocks show, in nanoseconds, by the calls that its own program makes.

    They prove a clock fault and nothing else: workers never stamp the history.
    """

    id: int
    wall_ns: int
    monotonic_ns: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """The worker cannot go on (its client did not connect, its target did not load)."""

    error: str


ToWorker = Hello | SendOp | Go | ReadClock
FromWorker = Ready | Done | Ask | Phase | Belief | ClockRead | Failed

_encoder = msgspec.json.Encoder()
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)
_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


def encode(message: ToWorker | FromWorker) -> bytes:
    """Return a message as one JSON line, newline included."""
    return _encoder.encode(message) + b"\n"


def decode_to_worker(line: bytes) -> ToWorker:
    """Decode a line that the controller sent.  Raises `msgspec.DecodeError`, `ValidationError`."""
    return _to_worker.decode(line)


def decode_from_worker(line: bytes) -> FromWorker:
    """Decode a line that a worker sent.  Raises `msgspec.DecodeError`, `ValidationError`."""
    return _from_worker.decode(line)


def schema() -> dict[str, Any]:
    """Return the JSON schema of both directions: `$defs`, and `to_worker` / `from_worker`."""
    (to_worker, from_worker), components = msgspec.json.schema_components(
        (ToWorker, FromWorker), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vanwinkle worker protocol",
        "anyOf": [to_worker, from_worker],
        "properties": {"to_worker": to_worker, "from_worker": from_worker},
        "$defs": components,
    }
