"""A target as the harness may ask it: what needs the run's network is asked by the envoy there."""

import contextlib
import itertools
import os
import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from harness.assemble import merged
from harness.cluster import records_of
from harness.errors import TargetError
from harness.node import Spawned
from harness.spec import RunSpec
from harness.target import Accept, Cluster, Place, ServerTime, Target
from harness.text import tail
from harness.trick import Part

ANSWER_S = 120.0
ENVOY = ("-P", "-m", "harness.envoy")
"""What Python is to run there."""

# What the harness asks of a target beside its clients, with what is returned.
_ASKED: Mapping[str, Any] = {
    "ready": str | None,
    "answers": str | None,
    "know": None,
    "leader": str | None,
    "server_time": ServerTime | None,
    "store_log": Sequence[Accept],
    "members": dict[str, str],
    "remove_member": str | None,
    "add_member": str | None,
}


class Distant:
    """A target with the attributes of another, some of which are asked elsewhere."""


def view(target: Target, ask: Callable[..., Any], names: Collection[str] = tuple(_ASKED)) -> Target:
    """Return the target with the same abilities; `ask(call, where, *arguments)` has those named."""
    seen = Distant()
    for name in dir(target):
        if name.startswith("_"):
            continue
        found = getattr(target, name)
        if name in names and callable(found):
            found = partial(ask, name)
        setattr(seen, name, found)
    return cast(Target, seen)


def parts_of(spec: RunSpec) -> dict[Part, dict[str, Any]]:
    """Return what the envoy makes its targets from; one of them when one plays both parts."""
    if spec.one_target:
        return {"lock": {"name": spec.lock.name, "options": merged(spec)}}
    return {
        "lock": {"name": spec.lock.name, "options": dict(spec.lock.options)},
        "store": {"name": spec.store.name, "options": dict(spec.store.options)},
    }


class EnvoyLine:
    """The line to the envoy of a run.  Calls block, and may come from any thread."""

    def __init__(
        self, envoy: Spawned, targets: Mapping[Part, Mapping[str, Any]], log: Path
    ) -> None:
        """`envoy` was started with pipes, and writes its complaints to `log`."""
        self._log = log
        self._spawned = envoy
        self._unseen = iter(targets)
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="envoy", daemon=True)
        self._reader.start()
        self._send(targets)

    def distant(self, target: Target) -> Target:
        """Return a target, asked over this line; the lock's comes first, then the store's."""
        part = next(self._unseen)
        return view(target, lambda call, *arguments: self.ask(part, call, *arguments))

    def ask(self, part: Part, call: str, where: Cluster | Place, *arguments: Any) -> Any:
        """Return what a target answers.  Raises OSError as the target does, else TargetError."""
        number = next(self._numbers)
        answers = self._waiting[number] = queue.SimpleQueue()
        place = records_of(where) if isinstance(where, Cluster) else msgspec.to_builtins(where)
        order = {"id": number, "part": part, "call": call, "where": place, "args": arguments}
        try:
            self._send(order)
            said = answers.get(timeout=ANSWER_S)
        except (queue.Empty, OSError):
            said = {"error": "the envoy does not answer"}
        finally:
            self._waiting.pop(number, None)
        if "error" not in said:
            return msgspec.convert(said["value"], _ASKED[call])
        if said.get("os"):
            raise OSError(said["error"])
        raise TargetError(f"{call}: {said['error']}{self._last_words()}")

    def close(self) -> None:
        """End the envoy."""
        os.close(self._spawned.stdin)
        self._reader.join(ANSWER_S)

    def _send(self, record: Any) -> None:
        data = memoryview(msgspec.json.encode(record) + b"\n")
        if self._gone:
            raise BrokenPipeError
        with self._sending:
            while data:
                data = data[os.write(self._spawned.stdin, data) :]

    def _last_words(self) -> str:
        if not self._gone:
            return ""
        with contextlib.suppress(OSError):
            return f"; the envoy's last lines:\n{tail(self._log.read_bytes())}"
        return ""

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._spawned.stdout, 1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                said = msgspec.json.decode(line)
                if waiting := self._waiting.get(said["id"]):
                    waiting.put(said)
        os.close(self._spawned.stdout)
        self._gone = True
        for waiting in list(self._waiting.values()):
            waiting.put({"error": "the envoy ended"})
