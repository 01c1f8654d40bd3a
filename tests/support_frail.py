"""A target with one small server that lives and dies as a test wants it to."""

import sys
from collections.abc import Sequence
from typing import Literal

from bench.noop import Noop
from harness.target import Server

PORT = 7300
_SCRIPT = """
import pathlib, socket, sys, threading
address, port, data, mode = sys.argv[1:]
starts = pathlib.Path(data, "starts")
with starts.open("a") as file:
    file.write("start\\n")
count = len(starts.read_text().split())
print("start", count, flush=True)
if mode == "once" and count > 1:
    print("never again", flush=True)
    sys.exit(4)
if mode == "fleeting":
    def end():
        print("boom", flush=True)
        import os
        os._exit(3)
    threading.Timer(1.5, end).start()
listener = socket.create_server((address, int(port)))
while True:
    listener.accept()[0].close()
"""


class Frail(Noop):
    """`steady` counts its starts in its data, `once` starts once, `fleeting` ends after 1.5 s."""

    name = "frail"

    def __init__(self, mode: Literal["steady", "once", "fleeting"] = "steady") -> None:
        self.mode = mode

    def servers(self) -> Sequence[Server]:
        """Start one."""
        argv = [sys.executable, "-S", "-c", _SCRIPT, "{address}", str(PORT), "{data}", self.mode]
        return [Server("frail1", argv, PORT)]
