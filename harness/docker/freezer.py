"""The engine's freezer, for the containers of one node.

What is frozen runs no instruction and takes no signal before it is thawed.  A freeze takes the
engine some 25 ms, so a thread of ours orders it.  Who looks into the processes must know of it:
`tell(True)` comes once all is frozen, `tell(False)` before any of it goes on.

A signal that the engine is asked to send to a frozen container thaws it, or waits for its thaw.  So
the engine is asked for none while anything is frozen; what was killed from inside of the process
space dies at the thaw, before its next instruction.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_SETTLE_S = 5.0
_AGAIN_S = 0.1


class Freezer:
    """Freezes and thaws what `containers` names; orders are carried out one after the other."""

    def __init__(
        self,
        api: Any,
        name: str,
        containers: Callable[[], Collection[str]],
        tell: Callable[[bool], None],
    ) -> None:
        """`tell` is called in the thread of the orders, and must not raise."""
        self._api = api
        self._containers = containers
        self._tell = tell
        self._wanted = False
        self._frozen: set[str] = set()
        self._told = False
        self._changing = threading.Lock()
        self._waits = False
        self._signals: set[str] = set()
        self._orders = ThreadPoolExecutor(1, thread_name_prefix=f"freezer {name}")

    def freeze(self) -> None:
        """Order that all which runs now is frozen; what starts later is not."""
        self._wanted = True
        if not set(self._containers()) <= self._frozen:
            self._settle_soon()

    def thaw(self) -> None:
        """Order that all which was frozen goes on."""
        if self.frozen():
            self._wanted = False
            self._settle_soon()

    def thaw_for_good(self) -> None:
        """Wait until all which was frozen goes on; no order is taken after that."""
        self.thaw()
        self._orders.shutdown()

    def signal(self, name: str, wanted: Callable[[], bool]) -> None:
        """Order a signal to the first process of each container.

        Nothing is sent to what is frozen then, nor when it is `wanted` no longer.
        """
        with self._changing:
            if name in self._signals:
                return  # one that waits is as good as two
            self._signals.add(name)
        self.submit(lambda: self._signal(name, wanted))

    def submit(self, order: Callable[[], object]) -> None:
        """Let the engine's orders of a node be carried out one after the other, in a thread."""
        with contextlib.suppress(RuntimeError):  # shut down: the run is over
            self._orders.submit(order)

    async def settled(self) -> None:
        """Wait until the orders given so far are carried out, at most 5 s.

        A look before that may find all going on while the engine is about to stop it.
        """
        with contextlib.suppress(RuntimeError):  # shut down: the run is over
            last = self._orders.submit(lambda: None)
            await asyncio.wait([asyncio.wrap_future(last)], timeout=_SETTLE_S)

    def frozen(self) -> bool:
        """Whether anything was frozen, or is about to be, and was not thawed."""
        return self._wanted or self._told or bool(self._frozen)

    def seen(self) -> bool:
        """Whether the engine says that all which runs now is frozen."""
        running = self._containers()
        return bool(running) and all(self._paused(container) for container in running)

    def forget(self, container: str) -> None:
        """Take note that a container ended, so that another life of it is not taken for frozen."""
        self._frozen.discard(container)

    def _settle_soon(self) -> None:
        with self._changing:
            if self._waits:
                return
            self._waits = True
        self.submit(self._settle)

    def _settle(self) -> None:
        with self._changing:
            self._waits = False
        if self._wanted:
            for container in sorted(set(self._containers()) - self._frozen):
                if self._asked(self._api.pause, container):
                    self._frozen.add(container)
            if self._frozen:
                self._told = True
                self._tell(True)
        else:
            self._tell(False)
            for container in sorted(self._frozen):
                if self._asked(self._api.unpause, container) or not self._may_be_paused(container):
                    self._frozen.discard(container)
            self._told = False
            if self._frozen:  # the engine did not do it, and is asked again
                time.sleep(_AGAIN_S)
                self._settle_soon()

    def _signal(self, name: str, wanted: Callable[[], bool]) -> None:
        with self._changing:
            self._signals.discard(name)
        for container in self._containers():
            if wanted() and not self._paused(container):
                self._asked(self._api.kill, container, name)

    def _paused(self, container: str) -> bool:
        from docker.errors import APIError

        try:
            return bool(self._api.inspect_container(container)["State"]["Paused"])
        except APIError:
            return False

    def _may_be_paused(self, container: str) -> bool:
        """Whether the engine says so, or does not say anything."""
        from docker.errors import DockerException, NotFound
        from requests.exceptions import RequestException

        try:
            return bool(self._api.inspect_container(container)["State"]["Paused"])
        except NotFound:
            return False
        except (DockerException, RequestException):
            return True

    def _asked(self, call: Callable[..., Any], *arguments: str) -> bool:
        """Ask the engine; what it refuses shows in what is looked at.

        It refuses what is so already, and what concerns a container that has just ended.
        """
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            call(*arguments)
        except (DockerException, RequestException):
            return False
        return True
