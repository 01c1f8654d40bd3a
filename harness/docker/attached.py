"""A server of the user's own, and the sidecar that is attached to its container.

The sidecar ends with the container.  So after each start of the server a new one is attached, which
takes a container's start, and is told the rules again.  That gap is a problem of the run if a cut
or a bad link was to be in force in it, and always if somebody else than a fault caused it.

From within a process space its first process can be neither stopped nor killed by a signal.  So
that is ordered from the engine: a pause is its freezer, or its signal to the first process while
ours go to all others; an end and a start are those of the container.  It can be told to go on from
within, and be traced, which is how its clock functions are exchanged.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from harness.docker.clocks import SidecarClocks
from harness.docker.engine import EngineError, engine_does
from harness.docker.process import how_ended
from harness.docker.project import Project
from harness.docker.sidecar import Sidecar
from harness.docker.stopping import Stopping
from harness.node import ProcessId

_SETTLE_S = 4.0
_AGAIN_S = 5.0
_RENEW_S = 30.0
_POLL_S = 0.02


class AttachedNode(Stopping):
    """A server of the user's own as a node; see `harness.node`.

    Its address is the name of its service, because the engine may give it another number at each
    start.  `renew` tells its sidecar the rules again and returns whether there are any; `report` is
    told what was amiss.
    """

    def __init__(
        self, project: Project, sidecar: Sidecar, renew: Callable[[str], Coroutine[Any, Any, bool]]
    ) -> None:
        super().__init__(project.api, sidecar, lambda: (sidecar.server,))
        self.name = self.address = sidecar.name
        self.data = Path("/")
        self.sidecar = sidecar
        self.clocks = SidecarClocks(sidecar)
        self.renew = renew
        self.report: Callable[[str], None] = lambda _: None
        self.closing = False
        self.end_ordered = False
        self.go = project.go
        self._api = project.api
        self._killing = threading.Lock()
        self._signalled = False

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> "Attachment":
        """Start the container if it does not run, whatever `argv` says, and follow its log."""
        return Attachment(self, log)

    def state(self) -> dict[str, Any]:
        """Return what the engine knows of the container.  Raises EngineError."""
        with engine_does(f"the container of {self.name} cannot be looked at"):
            state: dict[str, Any] = self._api.inspect_container(self.sidecar.server)["State"]
        return state

    def begin(self) -> float | None:
        """Start the container if it does not run, and see that it has a sidecar.

        Returns since when (monotonic) it ran without one, None if it had one.
        """
        self.end_ordered = False
        runs = self.state()["Running"]
        if not runs:
            with engine_does(f"the container of {self.name} cannot be started"):
                self._api.start(self.sidecar.server)
        if runs and not self.sidecar.gone:
            return None
        alone_s = time.monotonic()
        self.attach()
        return alone_s

    def attach(self) -> None:
        """Attach a sidecar."""
        self.sidecar.attach()
        if self.freezer.frozen() and self.freezer.seen():
            self.tell_frozen(frozen=True)

    def follow(self, log: Any, since: str) -> None:
        """Copy what the container prints to a file, until it ends."""
        began_s = datetime.fromisoformat(since[:19] + "+00:00").timestamp()
        with contextlib.suppress(Exception):  # the engine's stream may end in any way
            printed = self._api.logs(
                self.sidecar.server, stream=True, follow=True, since=int(began_s)
            )
            # Its own `close` closes the socket under the response, which then leaks the rest.
            with contextlib.closing(getattr(printed, "_response", printed)):
                for data in printed:
                    log.write(data)
                    log.flush()

    # ---------------------------------------------------------------- processes

    def processes(self) -> list[ProcessId]:
        """All processes that live here now, by their pids in here."""
        return [ProcessId(pid, start) for pid, start in self.peek("processes", [])]

    def stop_by_signal(self, owner: str) -> None:
        """Order every process to stop by SIGSTOP, the first one through the engine."""
        super().stop_by_signal(owner)
        self._signalled = True
        self.freezer.signal("SIGSTOP", self.held)

    def resume(self, owner: str) -> None:
        """Order all to go on, unless another owner still stops the node."""
        super().resume(owner)
        if self._signalled and not self.held():
            self._signalled = False
            # The engine may be about to send what was ordered before, so once more after that.
            self.freezer.submit(lambda: self.holder.order("resume", owner))

    def kill(self, *, kindly: bool = False) -> None:
        """Order the end of the container; one order at a time."""
        self.end_ordered = True
        if kindly:  # what is frozen would be thawed by it, and killed by nothing
            self.freezer.signal("SIGTERM", lambda: True)
        elif self._killing.acquire(blocking=False):
            self.freezer.submit(self._kill)

    def _kill(self) -> None:
        try:
            with contextlib.suppress(EngineError), engine_does(f"{self.name} cannot be killed"):
                self._api.kill(self.sidecar.server, "SIGKILL")
        finally:
            self._killing.release()


class Attachment:
    """One life of a server's container, or several in a row; see `harness.node.Spawned`."""

    stdin = stdout = -1

    def __init__(self, node: AttachedNode, log: Path) -> None:
        self._node = node
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Callable[[str], None] = lambda _: None

    def watch(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str], None]) -> None:
        """Begin; call `ended(how)` in the loop once it has ended for good."""
        self._loop, self._ended = loop, ended
        name = f"attached {self._node.name}"
        self._node.go(self._live, name)

    def kill(self) -> None:
        """Order its end."""
        self._node.kill()

    def _live(self) -> None:
        with self._log.open("ab") as log:
            try:
                how = self._lives(log)
            except (EngineError, OSError) as error:  # the latter when rules could not be told
                log.write(f"winkle: {error}\n".encode())
                how = "no start at all"
        if not self._node.closing:
            self._in_loop(lambda: self._ended(how))

    def _in_loop(self, call: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(call)

    def _lives(self, log: Any) -> str:
        """Watch until it ends for good; return how."""
        node = self._node
        alone_s = node.begin()
        if alone_s is not None and self._renewed():
            self._tell_gap("was started", alone_s)
        while True:
            started = str(node.state()["StartedAt"])
            follow = node.go(partial(node.follow, log, started), f"log of {node.name}")
            node.sidecar.await_end()
            lost_s = time.monotonic()
            state = self._settled(started)
            if not state["Running"] or state["StartedAt"] != started:
                node.freezer.forget(node.sidecar.server)
            if not state["Running"]:
                follow.join(_SETTLE_S)
                if node.closing or node.end_ordered or not self._runs_again():
                    return how_ended(int(state["ExitCode"]))
            if node.closing:
                return "the end of the run"
            same = node.state()["StartedAt"] == started
            node.attach()
            self._renewed()
            what = "lost its sidecar" if same else "was started again by somebody else"
            self._tell_gap(what, lost_s)

    def _settled(self, started: str) -> dict[str, Any]:
        """Return the state once it shows an end or another start, at most 4 s later."""
        return self._until(
            lambda state: not state["Running"] or state["StartedAt"] != started, _SETTLE_S
        )

    def _runs_again(self) -> bool:
        return bool(self._until(lambda state: bool(state["Running"]), _AGAIN_S)["Running"])

    def _until(self, done: Callable[[dict[str, Any]], bool], bound_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + bound_s
        state = self._node.state()
        while not done(state) and time.monotonic() < deadline and not self._node.closing:
            time.sleep(_POLL_S)
            state = self._node.state()
        return state

    def _renewed(self) -> bool:
        """Let the rules be told again; return whether there were any."""
        assert self._loop is not None
        work = self._node.renew(self._node.name)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_RENEW_S)

    def _tell_gap(self, what: str, since_s: float) -> None:
        """Report that nothing was in force for a while."""
        node = self._node
        gap_s = time.monotonic() - since_s
        node.report(
            f"server {node.name} {what}: another sidecar was attached, and for {gap_s:.2f} s no cut"
            " and no bad link was in force there"
        )
