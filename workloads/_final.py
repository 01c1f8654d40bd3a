"""What the workers of the `fencing` workload do after all faults were healed, as pure generators.

First the system must show that it goes on: every contender gives back what it may still hold, takes
a lock and gives it back again, and tries until that worked or its time is over.  Then everybody
reads every key, so that what was delayed or lost shows.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness.generator import Done, Invoke, Step, Wait
from harness.op import Op
from harness.rng import uniform
from workloads._contender import Plan

Stage = Literal["begin", "release", "acquire", "give back"]


@dataclass(frozen=True)
class FinalReader:
    """A worker that reads every key until it got an answer."""

    keys: tuple[str, ...]
    retry_ns: int
    asked: bool = False

    def step(
        self,
        last: Op | None,
        now_ns: int,
    ) -> "tuple[Step, FinalReader]":
        """Read the first key that is left."""
        if self.asked and last is not None:
            if last.type != "ok":
                return Wait(now_ns + self.retry_ns), replace(self, asked=False)
            return replace(self, keys=self.keys[1:], asked=False).step(None, now_ns)
        if not self.keys:
            return Done(), self
        return Invoke("read", self.keys[0]), replace(self, asked=True)


@dataclass(frozen=True)
class FinalContender:
    """A worker that shows that locks are granted, within `bound_ns`, and then reads.

    `turn` counts the tries, which go round the keys.  It does not know what it held before, so its
    first release of each key names no token: it means whatever the worker holds.
    """

    plan: Plan
    bound_ns: int
    stage: Stage = "begin"
    turn: int = 0
    until_ns: int = -1

    def step(
        self,
        last: Op | None,
        now_ns: int,
    ) -> "tuple[Step, FinalContender | FinalReader]":
        """Go on after the last answer."""
        if self.until_ns < 0:
            return replace(self, until_ns=now_ns + self.bound_ns).step(last, now_ns)
        if self.stage == "give back":
            return FinalReader(self.plan.keys, self.plan.retry_ns).step(None, now_ns)
        if self.stage == "acquire" and last is not None:
            return self._after_acquire(last, now_ns)
        if self.stage == "begin" and self.turn < len(self.plan.keys):
            return Invoke("release", self._key), replace(self, stage="release")
        return Invoke("acquire", self._key, {"ttl_s": self.plan.ttl_s}), replace(
            self, stage="acquire"
        )

    @property
    def _key(self) -> str:
        return self.plan.keys[self.turn % len(self.plan.keys)]

    def _after_acquire(self, last: Op, now_ns: int) -> "tuple[Step, FinalContender | FinalReader]":
        if last.type == "ok":
            return Invoke("release", self._key, None, last.token), replace(self, stage="give back")
        if now_ns >= self.until_ns:
            return FinalReader(self.plan.keys, self.plan.retry_ns).step(None, now_ns)
        factor = uniform(self.plan.stream, -1 - self.turn, 0.5, 1.5)
        wait = Wait(now_ns + round(self.plan.retry_ns * factor))
        return wait, replace(self, stage="begin", turn=self.turn + 1)
