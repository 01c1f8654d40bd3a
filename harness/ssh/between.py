"""`python -m harness.ssh.between`: the proxies of a run, on the host where its workers live.

Orders come as JSON lines with an `id`, a `call` and its `args`, and are answered by lines.  It ends
with its input.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.middle import Middle


async def _stream(_worker: str) -> socket.socket:
    """All workers share the network of the host."""
    return socket.socket()


async def _carry_out(middle: Middle, order: Mapping[str, Any]) -> None:
    answer: dict[str, Any] = {"id": order["id"]}
    try:
        call = getattr(middle, order["call"])
        result = call(*order["args"])
        answer["value"] = await result if asyncio.iscoroutine(result) else result
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        answer["error"] = f"{type(error).__name__}: {error}"
    data = memoryview(msgspec.json.encode(answer) + b"\n")
    while data:
        data = data[os.write(1, data) :]


async def main() -> None:
    """Serve until the end of input."""
    middle = Middle(_stream)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        await _carry_out(middle, msgspec.json.decode(line))


if __name__ == "__main__":
    asyncio.run(main())
