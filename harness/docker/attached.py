"""A server of the user's own, and the sidecar that is attached to its container.

The sidecar ends with the container.  So after each start of the server a new one is attached, which
takes a container's start, and is told the rules again.  That gap is a problem of the run if a cut
was to be in force in it, and always if somebody else than a fault caused it.

From within a process space its first process can be neither stopped nor killed, so that is ordered
from the engine: a pause is its freezer, an end and a start are those of the container.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.docker.engine import EngineError, engine_does
from harness.docker.process import how_ended
from harness.docker.project import Project
from harness.docker.sidecar import Sidecar
from harness.node import ProcessId, Threads

FROZEN = "frozen (by the engine's state, and each in /proc)"
_SETTLE_S = 2.0
_AGAIN_S = 3.0
_RENEW_S = 30.0
_POLL_S = 0.02


class AttachedNode:
    """A server of the user's own as a node; see `harness.node`.

    Its address is the name of its service, because the engine may give it another number at each
    start.  `renew` tells its sidecar the rules again and returns whether there are any; `report` is
    told what was amiss.
    """

    def __init__(
        self, project: Project, sidecar: Sidecar, renew: Callable[[str], Coroutine[Any, Any, bool]]
    ) -> None:
        self.name = self.address = sidecar.name
        self.data = Path("/")
        self.holder = sidecar
        self.renew = renew
        self.report: Callable[[str], None] = lambda _: None
        self.closing = False
        self.end_ordered = False
        self._api = project.api
        self._owners: set[str] = set()
        self._orders = ThreadPoolExecutor(1, thread_name_prefix=f"orders {self.name}")
        self._killing = threading.Lock()

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
            state: dict[str, Any] = self._api.inspect_container(self.holder.server)["State"]
        return state

    def begin(self) -> float | None:
        """Start the container if it does not run, and see that it has a sidecar.

        Returns since when (monotonic) it ran without one, None if it had one.
        """
        self.end_ordered = False
        runs = self.state()["Running"]
        if not runs:
            with engine_does(f"the container of {self.name} cannot be started"):
                self._api.start(self.holder.server)
        if runs and not self.holder.gone:
            return None
        alone_s = time.monotonic()
        self.attach()
        return alone_s

    def attach(self) -> None:
        """Attach a sidecar, and freeze again what is meant to be frozen."""
        self.holder.attach()
        if self._owners:
            self._order(self._api.pause)

    def follow(self, log: Any, since: str) -> None:
        """Copy what the container prints to a file, until it ends."""
        began_s = datetime.fromisoformat(since[:19] + "+00:00").timestamp()
        with contextlib.suppress(Exception):  # the engine's stream may end in any way
            for data in self._api.logs(
                self.holder.server, stream=True, follow=True, since=int(began_s)
            ):
                log.write(data)
                log.flush()

    # ---------------------------------------------------------------- processes

    def processes(self) -> list[ProcessId]:
        """All processes that live here now, by their pids in here."""
        found: list[Any] = self._look("processes", [])
        return [ProcessId(pid, start) for pid, start in found]

    def threads(self) -> Threads:
        """Look at every thread here, and at the engine's state."""
        total, frozen = self._look("frozen_threads", [0, 0])
        return Threads(total, frozen if self.state()["Paused"] else 0, FROZEN)

    def _look(self, call: str, nothing: Any) -> Any:
        """Ask the sidecar; nothing lives where it is gone, or goes in the middle of the answer."""
        try:
            return nothing if self.holder.gone else self.holder.ask(call)
        except OSError:
            if self.holder.gone:
                return nothing
            raise

    def kill(self, *, kindly: bool = False) -> None:
        """Order the end of the container; one order at a time."""
        self.end_ordered = True
        if self._killing.acquire(blocking=False):
            order = self._order(self._api.kill, "SIGTERM" if kindly else "SIGKILL")
            order.add_done_callback(lambda _: self._killing.release())

    def stop(self, owner: str) -> None:
        """Order the engine to freeze the container."""
        if not self._owners:
            self._order(self._api.pause)
        self._owners.add(owner)

    def resume(self, owner: str) -> None:
        """Order the engine to let it go on, unless another owner still stops it."""
        if owner in self._owners:
            self._owners.discard(owner)
            if not self._owners:
                self._order(self._api.unpause)

    def held(self) -> bool:
        """Whether any owner stops the node now."""
        return bool(self._owners)

    def _order(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Give an order to the engine after those before it; refusals show in what is looked at."""
        return self._orders.submit(call, self.holder.server, *arguments)


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
        threading.Thread(target=self._live, name=name, daemon=True).start()

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
            follow = threading.Thread(target=node.follow, args=(log, started), daemon=True)
            follow.start()
            node.holder.await_end()
            lost_s = time.monotonic()
            state = self._settled(started)
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
        """Return the state once it shows an end or another start, at most 2 s later."""
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
            " was in force there"
        )
