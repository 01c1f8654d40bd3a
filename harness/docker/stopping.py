"""Stopping what runs on a node, for several owners and in two ways.

The freezer is the engine's, signals go out from inside of the process space.  Whatever the way,
all of it is undone when the last owner lets go; until then nothing goes on.
"""

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from harness.docker.freezer import Freezer
from harness.docker.holder import Holder
from harness.node import Threads

FROZEN = "frozen (by the engine's state, and each in /proc)"
_STILL_S = 5.0


class Stopping:
    """What both kinds of node share: `Pausable`, `Freezable`, `Distant` of `harness.node`."""

    def __init__(self, api: Any, holder: Holder, containers: Callable[[], Collection[str]]) -> None:
        self.holder = holder
        self.freezer = Freezer(api, holder.name, containers, self.tell_frozen)
        self._owners: set[str] = set()

    def stop(self, owner: str) -> None:
        """Order the engine to freeze what runs here."""
        self._owners.add(owner)
        self.freezer.freeze()

    def stop_by_signal(self, owner: str) -> None:
        """Order every process to stop by SIGSTOP."""
        self._owners.add(owner)
        self.holder.order("stop", owner)

    def resume(self, owner: str) -> None:
        """Order all to go on, unless another owner still stops the node."""
        self._owners.discard(owner)
        self.holder.order("resume", owner)
        if not self._owners:
            self.freezer.thaw()

    def held(self) -> bool:
        """Whether any owner stops the node now."""
        return bool(self._owners)

    async def look(self) -> None:
        """Wait for the engine to carry out its orders: the next looks see what came of them."""
        await self.freezer.settled()

    def threads(self) -> Threads:
        """Look at every thread here in /proc, and at the engine's state."""
        total, stopped, still = self.peek("stopped_threads", [0, 0, 0])
        if self.freezer.seen():
            return Threads(total, still, FROZEN)
        return Threads(total, stopped, FROZEN if self.freezer.frozen() else Threads.seen)

    def peek(self, call: str, nothing: Any) -> Any:
        """Ask the holder; nothing lives where it is gone, or goes in the middle of the answer."""
        try:
            return nothing if self.holder.gone else self.holder.ask(call)
        except OSError:
            if self.holder.gone:
                return nothing
            raise

    def tell_frozen(self, frozen: bool) -> None:
        """Tell the holder that all is frozen now, or goes on in a moment, and wait for its yes."""
        with contextlib.suppress(OSError):  # it is gone, and nothing runs here
            self.holder.ask("frozen", frozen, bound_s=_STILL_S)
