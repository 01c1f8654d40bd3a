"""Programs that tell their clocks, for tests of clock faults on plain processes."""

import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

import pytest

from harness import procfs
from harness.node import ProcessId
from harness.vdso.image import UnreachableError, own


def _missing() -> str:
    try:
        own()
    except UnreachableError as error:
        return str(error)
    return ""


needs_clocks = pytest.mark.skipif(bool(_missing()), reason=_missing() or "clocks can be set")

PROGRAM = """
import json, os, signal, sys, threading, time
def clocks():
    names = ("REALTIME", "MONOTONIC", "MONOTONIC_RAW", "BOOTTIME", "REALTIME_COARSE", "TAI")
    found = {name: time.clock_gettime(getattr(time, "CLOCK_" + name, 5)) for name in names}
    return found | {"pid": os.getpid(), "time": time.time(), "second": time.localtime().tm_year}
def say(text): print(text, flush=True)
for _ in range(int(os.environ.get("THREADS", "0"))):
    threading.Thread(target=lambda: [time.sleep(0.02) for _ in iter(int, 1)], daemon=True).start()
children = []
say("ready")
for line in sys.stdin:
    word = line.strip()
    if word == "clocks":
        say(json.dumps(clocks()))
    elif word == "fork":
        r, w = os.pipe()
        child = os.fork()
        if not child:
            os.write(w, json.dumps(clocks()).encode()); time.sleep(600); os._exit(0)
        os.close(w); say(os.read(r, 4096).decode())
    elif word == "exec":
        os.execv(sys.executable, [sys.executable, "-S", "-c", os.environ["PROGRAM"]])
    elif word == "stop":
        say("stopping"); signal.pthread_kill(threading.get_ident(), signal.SIGSTOP); say("going on")
"""


class Program:
    """A Python program that does what a line on its standard input says."""

    def __init__(self, program: str = PROGRAM, *, threads: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PROGRAM": program, "THREADS": str(threads)},
        )
        assert self.line() == "ready"

    @property
    def id(self) -> ProcessId:
        """The process."""
        return process_id(self.process.pid)

    def order(self, word: str) -> None:
        """Write a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Read a line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def ask(self, word: str = "clocks") -> dict[str, Any]:
        """Write a line and read JSON."""
        self.order(word)
        found: dict[str, Any] = json.loads(self.line())
        return found

    def state(self) -> str:
        """The states of its threads, each letter once."""
        return "".join(sorted(set(procfs.thread_states(self.process.pid).values())))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def process_id(pid: int) -> ProcessId:
    """Name a living process."""
    start = procfs.start_ticks(pid)
    assert start is not None
    return ProcessId(pid, start)
