"""`python -m harness.envoy`: asks the systems under test from inside of the run's network.

The harness itself has no way into that network, and needs none.  The first line names the targets
as a worker's `hello` does; each further line is one call of an ability of theirs, carried out in a
thread of its own, because a call may hang in a partition.  In containers all data volumes are
mounted here, for targets that read the log of a store from its files.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harness.cluster import cluster_of
from harness.target import Place


class Envoy:
    """The targets by part."""

    def __init__(self, hello: Mapping[str, Any]) -> None:
        """`hello` has name and options of each part that is a target of its own."""
        from harness.plugins import make_target

        self._targets = {
            part: make_target(named["name"], named["options"]) for part, named in hello.items()
        }
        self._writing = threading.Lock()
        self._out = os.dup(1)
        os.dup2(2, 1)  # what a target prints must not look like an answer

    def take(self, line: bytes) -> None:
        """Carry out a call in a thread of its own."""
        order = msgspec.json.decode(line)
        threading.Thread(target=self._carry_out, args=(order,), daemon=True).start()

    def _carry_out(self, order: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {"id": order["id"]}
        try:
            call: Callable[..., Any] = getattr(self._targets[order["part"]], order["call"])
            answer["value"] = call(_where(order["where"]), *order["args"])
            data = msgspec.json.encode(answer)
        except Exception as error:  # noqa: BLE001 - a target's own code: whatever it is, it is told
            told = {"id": order["id"], "error": f"{type(error).__name__}: {error}"}
            data = msgspec.json.encode(told | {"os": isinstance(error, OSError)})
        with self._writing:
            view = memoryview(data + b"\n")
            while view:
                view = view[os.write(self._out, view) :]


def _where(said: Any) -> Any:
    """Return the cluster, or the one place, that a call is about."""
    return cluster_of(said) if isinstance(said, list) else msgspec.convert(said, Place)


def main() -> int:
    """Serve until the end of input."""
    lines = sys.stdin.buffer
    envoy = Envoy(msgspec.json.decode(lines.readline()))
    for line in lines:
        envoy.take(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
