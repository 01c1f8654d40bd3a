"""Starting and watching real runs from tests."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from harness import procfs
from harness.ledger import read

ROOT = Path(__file__).resolve().parent.parent
NOOP = str(ROOT / "bench" / "noop.py")
HEARS_ALL = ("env", "--default-signal=HUP")  # also when the tests run under `nohup`
BOUND_S = 120.0  # for what must come: a busy machine is no finding
T = TypeVar("T")


def stretched(bound_s: float) -> float:
    """Return what a bound of a machine with nothing else to do is on this one, by its load."""
    return bound_s * max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def slay(*pids: int) -> None:
    """Kill processes outright; one may end by the death of another."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until(look: Callable[[], T | None], what: str, bound_s: float = BOUND_S) -> T:
    """Return what `look` returns as soon as it is something; fail after a generous bound."""
    deadline = time.monotonic() + bound_s
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.005)
    raise AssertionError(f"waited {bound_s:g} s for {what}")


@dataclass
class LiveRun:
    """A run in a process of its own, with the chain of processes that carries it."""

    process: "subprocess.Popen[bytes]"
    state: Path
    out: Path
    held: ExitStack = field(default_factory=ExitStack)

    def ledger(self) -> Path | None:
        """The run's ledger, once it is there."""
        return next(iter(self.state.glob("vanwinkle/ledgers/*.jsonl")), None)

    def fault_in_force(self) -> bool:
        """Whether the run's ledger names a fault and its processes are stopped."""
        path = self.ledger()
        if path is None:
            return False
        head, entries = read(path)
        if not entries:
            return False
        return any(
            set(procfs.thread_states(pid).values()) == {procfs.STOPPED}
            for pid in self.members(head["pid_namespace"])
        )

    def namespace(self) -> int:
        """The inode of the sandbox's pid namespace, while the sandbox lives.

        Held open from now on: the kernel would give the number to the next sandbox of another test.
        """
        path = self.ledger()
        assert path is not None
        inode = int(read(path)[0]["pid_namespace"])
        fd = os.open(f"/proc/{self.members(inode)[0]}/ns/pid", os.O_RDONLY)
        self.held.callback(os.close, fd)
        return inode

    def members(self, namespace: int) -> list[int]:
        """All processes of the sandbox that live, as pids of this machine.

        One that is dead is an entry until the machine's own init takes note, a second later or two.
        """
        return [
            p
            for p in procfs.pids()
            if procfs.namespace_inode(p, "pid") == namespace and procfs.thread_states(p)
        ]

    def chain(self) -> dict[str, int]:
        """The pids of outer, helper, init and harness."""
        namespace = self.namespace()
        inner = {procfs.inner_pid(pid): pid for pid in self.members(namespace)}
        init = inner[1]
        helper = _parent(init)
        harness = next(p for p in self.members(namespace) if _parent(p) == init and _is_run(p))
        return {"outer": self.process.pid, "helper": helper, "init": init, "harness": harness}

    def folder(self) -> Path:
        """The run folder."""
        return (self.out / "latest").resolve()


def _parent(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    raise AssertionError(f"{pid} has no parent")


def _is_run(pid: int) -> bool:
    return b"harness.local.main" in Path(f"/proc/{pid}/cmdline").read_bytes()


@contextmanager
def live_run(tmp_path: Path, run_file: str) -> Iterator[LiveRun]:
    """Start `winkle run` on the text of a run file."""
    path = tmp_path / "run-file.yaml"
    path.write_text(run_file)
    out, state = tmp_path / "runs", tmp_path / "state"
    argv = ["-P", "-m", "harness.cli", "run", str(path), "--out", str(out)]
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [*HEARS_ALL, sys.executable, *argv],
            env=os.environ | {"XDG_STATE_HOME": str(state)},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    run = LiveRun(process, state, out)
    try:
        with run.held:
            yield run
    finally:
        process.kill()
        process.wait()
