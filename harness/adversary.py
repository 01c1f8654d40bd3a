"""One more worker of a run, `a1`: it holds no lock, and does only what a fault tells it.

It is a process like any other worker, and what it does is recorded like anything else, so what a
resource answered it is judged by the history alone.  It is hired only for a schedule with a fault
that needs it, and no generator ever drives it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, runtime_checkable

from harness.controller import Controller
from harness.generator import Invoke
from harness.op import Op
from harness.site import Attempt, Tokens

WORKER = "a1"
ANSWER_S = 10.0


@runtime_checkable
class NeedsAdversary(Protocol):
    """Ability of a fault: it acts through the adversary, which the run must hire for it."""

    adversary: Literal[True]


def wanted(faults: Iterable[object]) -> list[str]:
    """Return the names of the extra workers that these faults need."""
    return [WORKER] if any(isinstance(fault, NeedsAdversary) for fault in faults) else []


class ExtraWorker:
    """The adversary of one run; see the ability `Adversary` in `harness.site`.

    It exists before the controller does, so that a fault can ask for it early.
    """

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._controller: Controller | None = None
        self._granted: defaultdict[str, list[int]] = defaultdict(list)
        self._accepted: dict[str, int] = {}
        self._written = 0
        self._turn = asyncio.Lock()

    def join(self, controller: Controller) -> None:
        """Act through this controller, and hear of everything that ends there."""
        self._controller = controller
        controller.when_done = self._heard

    def _heard(self, asked: Op, done: Op) -> None:
        if done.type != "ok" or asked.key is None:
            return
        if asked.f == "acquire" and done.token is not None:
            self._granted[asked.key].append(done.token)
        elif asked.f == "write" and asked.token is not None and asked.worker != WORKER:
            known = self._accepted.get(asked.key, asked.token)
            self._accepted[asked.key] = max(known, asked.token)

    def tokens(self) -> Mapping[str, Tokens]:
        """Return what is known of the tokens of each key."""
        return {
            key: Tokens(tuple(granted), self._accepted.get(key))
            for key, granted in self._granted.items()
        }

    async def perform(self, f: str, key: str, token: int | None = None) -> Attempt:
        """Perform one operation, and wait until it ended or 10 s are over."""
        assert self._controller is not None
        async with self._turn:
            value = self._value(f)
            told = self._controller.perform(WORKER, Invoke(f, key, value, token))
            if told is None:
                return Attempt(None, "info", "the adversary is still busy, or gone")
            op, answer = told
            try:
                done = await asyncio.wait_for(asyncio.shield(answer), ANSWER_S)
            except TimeoutError:
                return Attempt(op, "info", f"no answer within {ANSWER_S:g} s", value=value)
        assert done.type != "invoke"
        return Attempt(op, done.type, done.error, done.value, value)

    def _value(self, f: str) -> object:
        """A value that was never written before; for a lock, that the grant is made up."""
        if f == "write":
            self._written += 1
            return f"{WORKER}-{self._written}"
        return None if f == "read" else {"made_up": True, "ttl_s": self._ttl_s}
