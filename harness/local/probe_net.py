"""Real attempts of the network faults in the scratch sandbox: what the kernel can, by doing it."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from harness.local.lab import Lab
from harness.local.links import BadLinks
from harness.local.network import Cuts
from harness.local.proxies import Proxies
from harness.shape import Shape
from harness.site import Pair
from harness.target import Place
from harness.trick import Trick

_PAIRS: list[Pair] = [("a", "b"), ("b", "a")]
_DELAY_S = 0.02


def partition(lab: Lab) -> str:
    """Cut two nodes off from each other and heal it."""
    return _run(_partition(lab, reject=False))


def refusal(lab: Lab) -> str:
    """The same with a reset for the sender."""
    return _run(_partition(lab, reject=True))


def link(lab: Lab) -> str:
    """Delay the packets between two nodes."""
    return _run(_link(lab))


def message(lab: Lab) -> str:
    """Lose the reply to a request through a proxy."""
    return _run(_message(lab))


def _run(attempt: Coroutine[Any, Any, str]) -> str:
    return asyncio.run(attempt)


async def _partition(lab: Lab, *, reject: bool) -> str:
    cuts = Cuts(lab.nodes)
    if reason := cuts.unavailable(reject=reject):
        raise OSError(reason)
    began = time.monotonic()
    await cuts.cut("probe", _PAIRS, reject=reject)
    took_ms = (time.monotonic() - began) * 1000
    passed = await cuts.passes(_PAIRS)
    if not all(p.nothing and p.refused in (False, reject) for p in passed.values()):
        raise OSError(f"packets pass a cut: {passed}")
    if reject and not all(passage.refused for passage in passed.values()):
        raise OSError(f"senders were not told: {passed}")
    await cuts.mend("probe")
    passed = await cuts.passes(_PAIRS)
    if not all(passage.whole for passage in passed.values()):
        raise OSError(f"packets do not pass after the cut: {passed}")
    how = "refused" if reject else "cut"
    return f"two nodes were {how} within {took_ms:.1f} ms, old and new connections, and healed"


async def _link(lab: Lab) -> str:
    links = BadLinks(lab.nodes, 0, Path("/dev/shm/probe/links"))
    if reason := links.unavailable():
        raise OSError(reason)
    await links.shape("probe", _PAIRS[:1], Shape(delay_s=_DELAY_S))
    slow = (await links.measure(_PAIRS[:1], 10, 64, 0.001, 1.0))[_PAIRS[0]]
    await links.unshape("probe")
    if slow.least_s is None or slow.least_s < _DELAY_S:
        raise OSError(f"packets were to be {_DELAY_S * 1000:g} ms late: {slow}")
    return f"packets were made {slow.least_s * 1000:.1f} ms late by the packet engine"


async def _message(lab: Lab) -> str:
    with lab["b"].inside():
        listener = socket.create_server((lab["b"].address, 0))
    server = await asyncio.start_server(_echo, sock=listener)
    address, port = listener.getsockname()
    place = Place("b", address, port, role="lock", data="")
    proxies = Proxies(lab.nodes, ["a"], {"lock": [place], "store": []})
    if reason := proxies.unavailable("lock"):
        raise OSError(reason)
    await proxies.open()
    (record,) = proxies.addresses("a", {"lock": [{"name": "b"}]})["lock"]
    with lab["a"].inside():
        stream = socket.socket()
    stream.setblocking(False)
    await asyncio.get_running_loop().sock_connect(stream, (record["address"], record["port"]))
    reader, writer = await asyncio.open_connection(sock=stream)
    await proxies.arm("probe", Trick("lose-reply", "lock"), ["a"])
    writer.write(b"request")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    (hit,) = await proxies.hits("probe")
    await proxies.disarm("probe")
    writer.close()
    server.close()
    if not hit.delivered or not hit.answered or hit.returned:
        raise OSError(f"a reply was to be lost: {hit}")
    return f"a reply of {hit.answered} bytes was lost, after its request was delivered"


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    await writer.drain()
