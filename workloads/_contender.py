"""What the workers of the `fencing` workload do, as pure generators.

A contender takes a lock, and while it holds it does rounds of read, check (with time to think) and
write; every write has a value that was never written before.  After some rounds it releases the
lock and lets others have it.  It takes itself for the owner until an answer says otherwise: a
lease check that says no, or a refusal, ends the hold at once; after an answer that leaves things
open it gives the lock back, once, since it may still have it.

Readers read, so that what was shown is on record.
"""

from dataclasses import dataclass, replace
from typing import Literal

from harness.generator import Invoke, Step, Wait
from harness.op import Op
from harness.rng import below, uniform

_LOST = ("fenced", "not-holder")
_IDLE_TRIES = 3.0  # so that a release is seen by somebody who waits


@dataclass(frozen=True)
class Plan:
    """What one worker does: names, times in nanoseconds, and its stream of random draws.

    `wait_s`: it queues for the lock so long, None: it tries once, and comes again; `time_ns` is the
    length of the run, after which nobody must wait any more.
    """

    worker: str
    stream: int
    keys: tuple[str, ...]
    ttl_s: float
    think_ms: float
    period_ns: int
    rounds: tuple[int, int]
    ask: bool
    retry_ns: int
    wait_s: float | None = None
    time_ns: int = 0


Stage = Literal["idle", "acquire", "round", "read", "check", "write", "release"]


@dataclass(frozen=True)
class Contender:
    """A worker that wants the locks.

    `n` counts the values written, `draws` the random numbers used; `next_ns` is when the next round
    may begin, `left` how many rounds this hold still has; `until_ns` when the run ends.
    """

    plan: Plan
    stage: Stage = "idle"
    key: str = ""
    token: int | None = None
    left: int = 0
    next_ns: int = 0
    n: int = 0
    draws: int = 0
    until_ns: int = -1

    def step(self, last: Op | None, now_ns: int) -> "tuple[Step, Contender]":
        """Go on after the last answer."""
        if self.until_ns < 0:
            return replace(self, until_ns=now_ns + self.plan.time_ns).step(last, now_ns)
        if self.stage == "idle" or last is None:
            return self.step_round(now_ns) if self.stage == "round" else self._acquire(now_ns)
        if self.stage == "acquire":
            return self._after_acquire(last, now_ns)
        if self.stage == "release":
            return self._rest(now_ns, _IDLE_TRIES)
        if last.type != "ok":
            return self._after_trouble(last, now_ns)
        if self.stage == "read":
            return self._invoke("check", {"ask": self.plan.ask, "think_ms": self.plan.think_ms})
        if self.stage == "check":
            if isinstance(last.value, dict) and last.value.get("held") is False:
                return self._rest(now_ns)
            step, going = self._invoke("write", f"{self.plan.worker}-{self.n}")
            return step, replace(going, n=self.n + 1)
        return self.step_round(now_ns)

    def forget(self) -> "Contender":
        """Go on as a new process, which holds no lock; what was ever written stays used."""
        return replace(self, stage="idle", token=None, left=0)

    def _acquire(self, now_ns: int) -> "tuple[Step, Contender]":
        key = self.plan.keys[below(self.plan.stream, self.draws, len(self.plan.keys))]
        going = replace(self, stage="acquire", key=key, draws=self.draws + 1)
        asked = {"ttl_s": self.plan.ttl_s}
        if self.plan.wait_s is not None:
            # Who waits longer than the run would wait for a lock that nobody gives back any more.
            asked["wait_s"] = min(self.plan.wait_s, max(0.0, (self.until_ns - now_ns) / 1e9))
        return Invoke("acquire", key, asked), going

    def _after_acquire(self, last: Op, now_ns: int) -> "tuple[Step, Contender]":
        if last.type != "ok":
            return self._rest(now_ns)
        low, high = self.plan.rounds
        left = low + below(self.plan.stream, self.draws, high - low + 1)
        held = replace(self, token=last.token, left=left, next_ns=now_ns, draws=self.draws + 1)
        return held.step_round(now_ns)

    def step_round(self, now_ns: int) -> "tuple[Step, Contender]":
        """Begin the next round when its time has come; release the lock after the last one."""
        if not self.left:
            return self._invoke("release")
        if now_ns < self.next_ns:
            return Wait(self.next_ns), replace(self, stage="round")
        going = replace(self, left=self.left - 1, next_ns=now_ns + self.plan.period_ns)
        return Invoke("read", self.key), replace(going, stage="read")

    def _after_trouble(self, last: Op, now_ns: int) -> "tuple[Step, Contender]":
        code = (last.error or "").split(":", 1)[0]
        if last.type == "fail" and code in _LOST:
            return self._rest(now_ns)
        return self._invoke("release")

    def _invoke(
        self, f: Literal["check", "write", "release"], value: object = None
    ) -> "tuple[Step, Contender]":
        return Invoke(f, self.key, value, self.token), replace(self, stage=f)

    def _rest(self, now_ns: int, tries: float = 1.0) -> "tuple[Step, Contender]":
        """Wait about `tries` times the pause between two tries, then begin anew."""
        factor = uniform(self.plan.stream, self.draws, 0.5, 1.5)
        until_ns = now_ns + round(self.plan.retry_ns * tries * factor)
        going = replace(self, stage="idle", token=None, left=0, draws=self.draws + 1)
        return Wait(until_ns), going


@dataclass(frozen=True)
class Reader:
    """A worker that reads the keys in turn for ever."""

    keys: tuple[str, ...]
    period_ns: int
    turn: int = 0
    next_ns: int = 0

    def step(
        self,
        last: Op | None,
        now_ns: int,
    ) -> "tuple[Step, Reader]":
        """Read the next key when its time has come."""
        if now_ns < self.next_ns:
            return Wait(self.next_ns), self
        key = self.keys[self.turn % len(self.keys)]
        going = replace(self, turn=self.turn + 1, next_ns=now_ns + self.period_ns)
        return Invoke("read", key), going
