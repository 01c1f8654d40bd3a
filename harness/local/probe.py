"""`python -m harness.local.probe`: try everything that the local backend needs, for real.

Runs in a scratch sandbox that is gone afterwards, and prints one JSON line when it begins a step,
and one with what came out.  A step that never ends is thereby named, and where it stands is printed
before the probe is ended.  The settings of the machine are not asked: what a setting promises and
what a call does are two things.
"""

import faulthandler
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.local import probe_clock, probe_life, probe_net, sandbox
from harness.local.lab import Lab
from harness.local.namespaces import Inside

_BOUND_S = 5.0
_STUCK_S = 50.0


def steps() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each step with a function that does it and says what it saw."""
    labs: list[Lab] = []

    def network() -> str:
        labs.append(Lab(["a", "b"], Path("/dev/shm/probe")))
        return "a bridge and two nodes in network namespaces"

    def connect() -> str:
        return _connect(labs[0])

    def pause() -> str:
        return _pause(labs[0])

    def back_off() -> str:
        if not labs[0]["a"].sysctl("net.ipv4.tcp_rto_max_ms", "1000"):
            raise OSError(
                "net.ipv4.tcp_rto_max_ms is missing (kernel before 6.15): connections that were "
                "cut take longer to come back"
            )
        return "net.ipv4.tcp_rto_max_ms can be set"

    yield "network", network
    yield "nodes reach each other", connect
    yield "fault pause", pause
    for fault in (probe_life.kill, probe_life.disk, probe_life.amnesia):
        yield f"fault {fault.__name__}", lambda fault=fault: fault(labs[0])  # type: ignore[misc]
    for attempt in (probe_net.partition, probe_net.link, probe_net.message):
        yield f"fault {attempt.__name__}", lambda attempt=attempt: attempt(labs[0])  # type: ignore[misc]
    yield "partition with reject (optional)", lambda: probe_net.refusal(labs[0])
    yield "fault clock (optional)", lambda: probe_clock.clock(labs[0])
    yield "quick recovery after cuts (optional)", back_off


def _connect(lab: Lab) -> str:
    import socket

    server = lab["b"]
    with Inside(server._namespace):  # noqa: SLF001 - the probe is part of this backend
        listener = socket.create_server((server.address, 7))
    with Inside(lab["a"]._namespace):  # noqa: SLF001 - the same
        client = socket.socket()
    with listener, client:
        client.settimeout(_BOUND_S)
        client.connect((server.address, 7))
    return "a TCP connection from node a to node b"


def _pause(lab: Lab) -> str:
    node = lab["a"]
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    node.spawn(argv, log=Path("/dev/shm/probe/log"))
    began = time.monotonic()
    node.stop("probe")
    while not (seen := node.threads()).total or seen.stopped < seen.total:
        if time.monotonic() - began > _BOUND_S:
            raise OSError("a stopped process did not get to state T")
        time.sleep(0.0005)
    took_ms = (time.monotonic() - began) * 1000
    node.signal(signal.SIGKILL)
    return f"a process was stopped in {took_ms:.1f} ms, proven by its state"


def examine() -> int:
    """Do all steps and print what came out; return 0 even when some failed."""
    faulthandler.dump_traceback_later(_STUCK_S, file=sys.stderr)
    for name, step in steps():
        _say({"trying": name})
        record: dict[str, object] = {"name": name, "ok": True}
        try:
            record["text"] = step()
        except Exception as error:  # noqa: BLE001 - every failure of a probe is an answer
            record |= {"ok": False, "text": f"{type(error).__name__}: {error}"}
        _say(record)
    return 0


def _say(record: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    lifeline, complaints = sandbox.descriptors()
    sys.exit(sandbox.run_helper(examine, lifeline, complaints))
