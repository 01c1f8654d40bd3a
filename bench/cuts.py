"""`python -m bench.cuts N`: when packets really stop after the order to cut, and pass after heal.

A process in one node sends a numbered datagram every 0.2 ms, one in another receives; both note the
time.  What is printed does not depend on any probe of the harness.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.local import sandbox
from harness.local.lab import Lab
from harness.local.network import Cuts

HOLD_S = 0.03
_SEND = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
host, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
due = time.monotonic()
while due < end:
    due += 0.0002
    while time.monotonic() < due:
        time.sleep(0.00005)
    s.sendto(repr(time.monotonic()).encode(), (host, 9))
"""
_RECEIVE = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
s.bind((sys.argv[1], 9))
s.settimeout(1.5)
try:
    while True:
        print(s.recv(64).decode())
except TimeoutError:
    pass
"""


async def measure(lab: Lab, count: int) -> list[tuple[float, float]]:
    """Cut and heal, and return when each was ordered, by the monotonic clock."""
    cuts = Cuts(lab.nodes)
    if reason := cuts.unavailable():
        raise OSError(reason)
    orders = []
    for _ in range(count):
        cut_s = time.monotonic()
        await cuts.cut("bench", [("a", "b")])
        await asyncio.sleep(HOLD_S)
        heal_s = time.monotonic()
        await cuts.mend("bench")
        await asyncio.sleep(HOLD_S)
        orders.append((cut_s, heal_s))
    return orders


def judge(
    orders: Sequence[tuple[float, float]], arrived: Sequence[float]
) -> dict[str, list[float]]:
    """Return the times in ms from each order to what the datagrams, by their send times, show."""
    effect, heal = [], []
    for cut_s, heal_s in orders:
        last = max((t for t in arrived if t < heal_s), default=cut_s)
        effect.append(max(0.0, last - cut_s) * 1000)
        heal.append((min(t for t in arrived if t > heal_s) - heal_s) * 1000)
    return {"effect_ms": effect, "heal_ms": heal}


def run() -> int:
    """Be the harness of the sandbox."""
    count = int(sys.argv[1])
    lab = Lab(["a", "b"], Path("/dev/shm/bench"))
    out, errors = Path("/dev/shm/bench/out"), Path("/dev/shm/bench/errors")
    argv = [sys.executable, "-S", "-u", "-c"]
    receiver = lab["b"].spawn([*argv, _RECEIVE, lab["b"].address], log=out)
    seconds = str(1 + count * (2 * HOLD_S + 0.03))
    time.sleep(0.3)
    lab["a"].spawn([*argv, _SEND, lab["b"].address, seconds], log=errors)
    time.sleep(0.3)
    orders = asyncio.run(measure(lab, count))
    os.waitpid(receiver.pid, 0)
    arrived = [float(line) for line in out.read_text().splitlines()]
    sys.stdout.write(json.dumps(judge(orders, arrived)) + "\n")
    return 0


if __name__ == "__main__":
    if "WINKLE_LIFELINE" in os.environ:
        sys.exit(sandbox.run_helper(run, *sandbox.descriptors()))
    sys.exit(sandbox.launch("bench.cuts", *sys.argv[1:]).code)
