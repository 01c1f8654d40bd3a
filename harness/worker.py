"""The worker's side: a real process that holds leases and writes, driven over stdio.

`python -m harness.worker` loads the targets that the controller names and runs their clients in two
threads: one performs the operations, the other renews leases on the worker's own clock, as real
client libraries do.  Both belong to one process, so SIGSTOP freezes the renewals with the rest.
Anything that a client library prints goes to standard error and cannot disturb the protocol.
"""

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from harness.answer import AdapterError, completion
from harness.bell import rest
from harness.phase import pass_phase
from harness.protocol import (
    LINE_BYTES_MAX,
    ClockRead,
    Done,
    Failed,
    FromWorker,
    Go,
    Hello,
    Phase,
    ReadClock,
    Ready,
    SendOp,
    ToWorker,
    decode_to_worker,
    encode,
)
from harness.renewer import Holdings, Renewer
from harness.target import (
    Believes,
    Grant,
    LeaseCheck,
    LockClient,
    QueueClient,
    RefusedError,
    StoreClient,
    Stored,
    StrangerClient,
)
from harness.text import plain

_OF_THE_LOCK = frozenset({"acquire", "renew", "release", "check"})


class Wire:
    """Standard input and output as messages; writing is safe from both threads."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # what a library prints must not look like a message
        self._lock = threading.Lock()
        self._input = os.fdopen(0, "rb", buffering=1 << 16, closefd=False)

    def send(self, message: FromWorker) -> None:
        """Send one message."""
        data = memoryview(encode(message))
        with self._lock:
            while data:
                data = data[os.write(self._out, data) :]

    def receive(self) -> ToWorker | None:
        """Return the next message, None at the end of input."""
        line = self._input.readline(LINE_BYTES_MAX)
        return decode_to_worker(line) if line.endswith(b"\n") else None


@dataclass(frozen=True)
class Result:
    """How an operation ended, before it is put on the wire."""

    value: Any = None
    token: int | None = None


class Operator:
    """Performs the operations of the main lane, one at a time."""

    def __init__(
        self,
        wire: Wire,
        lock: LockClient,
        store: StoreClient,
        holdings: Holdings,
        targets: "Targets",
        stranger: Callable[[], StrangerClient],
    ) -> None:
        self._wire = wire
        self._lock = lock
        self._store = store
        self._holdings = holdings
        self._targets = targets
        self._make_stranger = stranger
        self._verbs: dict[str, Callable[[SendOp], Result]] = {
            "acquire": self._acquire,
            "renew": self._renew,
            "release": self._release,
            "check": self._check,
            "read": self._read,
            "write": self._write,
            "own": self._own,
            "foreign-read": lambda op: _shown(self._stranger.read(_key(op))),
            "foreign-write": lambda op: Result(list(self._stranger.write(_key(op), op.value))),
            "foreign-watch": lambda op: _shown(
                self._stranger.watch(_key(op), float(op.value["for_s"]))
            ),
        }

    @cached_property
    def _stranger(self) -> StrangerClient:
        """The client of somebody else, made when the first such operation is asked for."""
        return self._make_stranger()

    def perform(self, op: SendOp) -> None:
        """Perform one operation and answer it."""
        verb = self._verbs.get(op.f)
        if verb is None:
            self._wire.send(
                Done(id=op.id, result="fail", error=f"no-effect: no operation {op.f!r}")
            )
            return
        try:
            result = verb(op)
        except AdapterError as error:
            self._wire.send(Done(id=op.id, result="info", error=f"adapter: {error}"))
            self._wire.send(Failed(error=str(error)))
            return
        except Exception as error:  # noqa: BLE001 - the error table decides what it means
            target = self._targets.lock if op.f in _OF_THE_LOCK else self._targets.store
            self._wire.send(completion(op.id, target, error))
            self._after_error(op, error)
            return
        self._wire.send(Done(id=op.id, result="ok", value=result.value, token=result.token))
        if op.f == "acquire":
            self._phase("acquired", op, result.token)

    def _after_error(self, op: SendOp, error: Exception) -> None:
        if op.f == "write" and isinstance(error, RefusedError) and op.key is not None:
            self._holdings.lose(op.key, "refused by the resource")

    def _phase(self, phase: str, op: SendOp, token: int | None) -> None:
        pass_phase(
            self._wire.send, op.stop_at, Phase(phase=phase, id=op.id, key=op.key, token=token)
        )

    def _acquire(self, op: SendOp) -> Result:
        key, ttl_s = _key(op), float(op.value["ttl_s"])
        began = time.monotonic()
        if "wait_s" in op.value:
            grant, began = self._wait(op, key, ttl_s)
        else:
            grant = self._lock.acquire(key, ttl_s)
        if not isinstance(grant, Grant):
            raise AdapterError(f"acquire returned {type(grant).__name__}, it must return a Grant")
        if grant.token is not None and not isinstance(grant.token, int):
            raise AdapterError(
                f"the token of a grant is {grant.token!r}, it must be an int or None"
            )
        self._holdings.gain(grant, began)
        return Result({"ttl_s": grant.ttl_s}, grant.token)

    def _wait(self, op: SendOp, key: str, ttl_s: float) -> tuple[Grant, float]:
        """Queue for the lock; return the grant, and when its last acknowledged request began."""
        if not isinstance(self._lock, QueueClient):
            raise AdapterError("its clients cannot queue for a lock")
        began = time.monotonic()
        place = self._lock.queue(key, ttl_s)
        self._holdings.queue(place.grant, began)
        try:
            if place.waiting:
                self._phase("queued", op, place.grant.token)
            grant = self._lock.wait(place, float(op.value["wait_s"]))
        finally:
            kept = self._holdings.leave_queue(key)
        # Where the service had called the lease ended, its word that it is granted is the newer.
        return grant, time.monotonic() if kept is None else kept

    def _renew(self, op: SendOp) -> Result:
        """Renew a grant that is made up: what this worker holds, it renews by itself."""
        grant = _made_up(op)
        if grant is None:
            raise RefusedError("no-effect", "only a grant that is made up is renewed on order")
        self._lock.renew(grant)
        return Result()

    def _release(self, op: SendOp) -> Result:
        grant = _made_up(op) or self._holdings.lose(_key(op), "released")
        if grant is None:
            raise RefusedError("no-effect", "this worker knows that it lost the lock")
        self._lock.release(grant)
        return Result()

    def _check(self, op: SendOp) -> Result:
        key = _key(op)
        held: bool | None = None
        told: dict[str, bool] = {}
        if op.value["ask"]:
            grant = self._holdings.grant(key)
            held = grant is not None and self._still_held(grant)
            told = {"asked": False} if grant is None else {}  # then it knows by itself
        self._phase("lease-checked", op, op.token)
        if held is not False:
            rest(op.value["think_ms"] / 1000)
            self._phase("before-write", op, op.token)
        return Result({"held": held, **told})

    def _still_held(self, grant: Grant) -> bool:
        if isinstance(self._lock, LeaseCheck) and not self._lock.check(grant):
            why = "the service says that somebody else holds it, or nobody"
            self._holdings.lose(grant.key, why)
            return False
        return True

    def _own(self, op: SendOp) -> Result:
        self._stranger.own(op.value)
        return Result()

    def _read(self, op: SendOp) -> Result:
        stored = self._store.read(_key(op))
        if stored is None:
            return Result()
        _check_stored(stored, "read")
        return Result(plain(stored.value), stored.token)

    def _write(self, op: SendOp) -> Result:
        over = self._store.write(_key(op), op.value, op.token)
        if over is None:
            return Result()
        _check_stored(over, "write")
        return Result({"over": {"value": plain(over.value), "token": over.token}})


def _shown(values: Sequence[Any]) -> Result:
    return Result([plain(value) for value in values])


def _check_stored(stored: object, verb: str) -> None:
    if not isinstance(stored, Stored):
        raise AdapterError(
            f"{verb} returned {type(stored).__name__}, it must return Stored or None"
        )
    if stored.token is not None and not isinstance(stored.token, int):
        raise AdapterError(f"{verb} returned the token {stored.token!r}, it must be an int or None")


def _made_up(op: SendOp) -> Grant | None:
    """Return the grant that nobody gave and that an adversary is told to use, None if it is not."""
    if not isinstance(op.value, dict) or not op.value.get("made_up"):
        return None
    return Grant(_key(op), op.token, float(op.value["ttl_s"]))


def _key(op: SendOp) -> str:
    if op.key is None:
        raise AdapterError(f"{op.f} needs a key")
    return op.key


@dataclass(frozen=True)
class Targets:
    """The two parts as this worker sees them; the same object when one target plays both."""

    lock: Any
    store: Any


def load(
    hello: Hello,
) -> tuple[
    Targets, Callable[[], LockClient], Callable[[], StoreClient], Callable[[], StrangerClient]
]:
    """Make the targets that `hello` names, and return ways to make their clients."""
    from harness.cluster import cluster_of
    from harness.plugins import make_target

    lock = make_target(hello.lock["name"], hello.lock["options"])
    same = hello.store["name"] == hello.lock["name"]
    store = lock if same else make_target(hello.store["name"], hello.store["options"])
    lock_cluster = cluster_of(hello.servers["lock"])
    store_cluster = lock_cluster if same else cluster_of(hello.servers["store"])
    for part, target, cluster in (("lock", lock, lock_cluster), ("store", store, store_cluster)):
        if part in hello.secrets:
            target.know(cluster, hello.secrets[part])
    return (
        Targets(lock, store),
        lambda: lock.lock(lock_cluster, hello.op_timeout_s),
        lambda: store.store(store_cluster, hello.op_timeout_s),
        lambda: store.stranger(store_cluster, hello.op_timeout_s),
    )


def serve(wire: Wire) -> int:
    """Be a worker until the end of input; return the exit code."""
    hello = wire.receive()
    if not isinstance(hello, Hello):
        wire.send(Failed(error="the first message must be a hello"))
        return 1
    try:
        targets, lock_client, store_client, stranger = load(hello)
        operator_lock, renewer_lock, store = lock_client(), lock_client(), store_client()
    except Exception as error:  # noqa: BLE001 - reported in full, whatever it is
        import traceback

        traceback.print_exc()
        wire.send(Failed(error=f"{type(error).__name__}: {plain(str(error))}"))
        return 1
    own = operator_lock.believes if isinstance(operator_lock, Believes) else None
    holdings = Holdings(wire.send, own)
    renewer = Renewer(wire.send, renewer_lock, targets.lock, holdings)
    operator = Operator(wire, operator_lock, store, holdings, targets, stranger)
    inbox: queue.SimpleQueue[SendOp] = queue.SimpleQueue()

    def work() -> None:
        while True:
            operator.perform(inbox.get())

    threading.Thread(target=work, name="operator", daemon=True).start()
    threading.Thread(target=renewer.run, name="renewer", daemon=True).start()
    wire.send(Ready(abilities=["stop_at", "clock"]))
    while (message := wire.receive()) is not None:
        if isinstance(message, SendOp):
            inbox.put(message)
        elif isinstance(message, Go):
            renewer.go(message)
        elif isinstance(message, ReadClock):
            now = ClockRead(id=message.id, wall_ns=time.time_ns(), monotonic_ns=time.monotonic_ns())
            wire.send(now)
    return 0


def main() -> int:
    """Entry point of `python -m harness.worker`."""
    # Ctrl-C is the controller's business: a worker ends at the end of its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire = Wire()
    try:
        code = serve(wire)
    except msgspec.DecodeError as error:
        wire.send(Failed(error=f"the controller sent a line that is no message: {error}"))
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the threads may sit in a call that a partition never ends


if __name__ == "__main__":
    main()
