"""Authority: somebody uses a token that he was never granted, beside the honest owners.

This is a former owner that another process speaks for, a bug that mixes up two tasks, a client that
counts by itself, or an attacker.  It attacks the belief that a token proves who its sender is.  An
adversary, one more worker, sends the operation at once; what the resource answered is in the
history like anything else, and what it did is seen by a read.

Not every resource can know better, so the kinds differ in what they may be blamed for:

- `old`, `guessed`: a token that somebody was granted earlier, or a number that nobody was, below
  one that was accepted already.  Every fence that compares numbers must refuse it.  This is the
  default.
- `foreign`: the newest token, which belongs to somebody else.  Only a resource that knows who was
  granted what (or tokens that cannot be guessed, and are not shown) can refuse it.
- `forged`: a number far above all that were granted.  A fence that only compares numbers accepts
  it, and refuses all honest owners from then on.

An accepted one is a `forged-token` in each case; with the last two that is a statement about the
trust model, and asked for on purpose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from harness.cast import Cast
from harness.mistakes import Mistake
from harness.node import Node
from harness.rng import below, stream
from harness.site import Adversary, Attempt, Site, Tokens
from harness.target import Forgeable
from harness.window import Proof

Kind = Literal["guessed", "old", "foreign", "forged"]
KINDS: tuple[Kind, ...] = get_args(Kind)
JUMP = 1000
_GAPS_MAX = 1000


def _kinds(value: object) -> tuple[Kind, ...]:
    """Read `guessed+old`.  Raises ValueError with what is allowed."""
    words = str(value).split("+")
    chosen = tuple(kind for kind in KINDS if kind in words)
    if len(chosen) != len(words):
        raise ValueError(
            f"found {value!r}; allowed: {', '.join(KINDS)}, or several, like guessed+old"
        )
    return chosen


@dataclass(frozen=True)
class Tried:
    """One use of a token that was not the adversary's; `seen` is what a read showed after it."""

    kind: Kind
    key: str
    token: int
    outcome: str
    error: str | None
    op: int | None
    seen: bool | None = None

    def __str__(self) -> str:
        said = {"ok": "accepted", "fail": "refused", "info": "unknown"}[self.outcome]
        because = f" ({self.error})" if self.error else ""
        shown = {True: ", a read shows it", False: ", a read does not show it", None: ""}[self.seen]
        return f"{self.kind} token {self.token} of {self.key}: {said}{because}{shown}"


class Authority:
    """Use tokens that were never granted to their user, by one more worker."""

    name = "authority"
    adversary: Literal[True] = True

    class Options(BaseModel):
        """Options of the fault `authority`; `who` only says when: as soon as there is one."""

        model_config = ConfigDict(extra="forbid", validate_default=True)

        what: Annotated[
            tuple[Kind, ...],
            BeforeValidator(_kinds),
            WithJsonSchema(
                {
                    "type": "string",
                    "description": f"which tokens, one or several of {', '.join(KINDS)}; foreign"
                    " and forged only fail where the resource knows who was granted what",
                }
            ),
        ] = "guessed+old"  # type: ignore[assignment] # validated like any other input
        f: Literal["write", "renew", "release"] = Field(
            "write", description="the operation that is tried with them"
        )

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)
        self._draws = 0
        self._tried: list[Tried] = []
        self._lacking: list[Kind] = []

    def impossible(self, cast: Cast) -> Mistake | None:
        """Return None when a grant can be made up as far as it is needed, else why not."""
        lock: object = cast.lock
        f = self.options.f
        if f == "write" or (isinstance(lock, Forgeable) and f in lock.by_token):
            return None
        grant = f"a grant of {cast.lock.name} is more than a key and a token"
        return Mistake(("f",), f"found {f}, but {grant}, so none can be made up; allowed: write")

    def available(self, site: Site) -> str | None:
        """Return None when there is an adversary, else why not."""
        return "there is no worker to be the adversary" if site.adversary is None else None

    def undo(self, site: Site, nodes: Sequence[Node]) -> dict[str, Any]:
        """Nothing is left to be undone."""
        return {"what": "nothing"}

    async def start(self, site: Site, nodes: Sequence[Node]) -> None:
        """Try each kind of token once, where there is one."""
        adversary = site.adversary
        assert adversary is not None, "asked by available()"
        self._tried, self._lacking = [], []
        for kind in self.options.what:
            chosen = self._choose(kind, adversary.tokens(), site.seed)
            if chosen is None:
                self._lacking.append(kind)
            else:
                self._tried.append(await self._try(adversary, kind, *chosen))

    def _choose(
        self, kind: Kind, tokens: Mapping[str, Tokens], seed: int
    ) -> tuple[str, int] | None:
        start = stream(seed, f"authority-{self.options.f}-{'+'.join(self.options.what)}")
        found = {
            key: numbers
            for key, known in sorted(tokens.items())
            if (numbers := candidates(kind, known, written=self.options.f == "write"))
        }
        if not found:
            return None
        key = list(found)[below(start, self._draws, len(found))]
        token = found[key][below(start, self._draws + 1, len(found[key]))]
        self._draws += 2
        return key, token

    async def _try(self, adversary: Adversary, kind: Kind, key: str, token: int) -> Tried:
        f = self.options.f
        if f != "write":
            return _tried(kind, key, token, await adversary.perform(f, key, token))
        await adversary.perform("read", key)  # an honest owner reads before it writes, too
        attempt = await adversary.perform(f, key, token)
        after = await adversary.perform("read", key)
        seen = after.result == attempt.value if after.outcome == "ok" else None
        return _tried(kind, key, token, attempt, seen)

    async def in_force(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Return what the resource answered, and what a read showed after that."""
        answered = [one for one in self._tried if one.outcome != "info"]
        told = [str(one) for one in self._tried]
        told += [f"no {kind} token to be had yet" for kind in self._lacking]
        return Proof(
            holds=bool(answered) if answered or not self._tried else None,
            text="; ".join(told),
            facts={"tried": [asdict(one) for one in self._tried]},
        )

    async def stop(self, site: Site, nodes: Sequence[Node]) -> None:
        """Do nothing: the adversary acts once and is silent."""

    async def gone(self, site: Site, nodes: Sequence[Node]) -> Proof:
        """Say that it is."""
        return Proof(holds=True, text="the adversary is silent")


def candidates(kind: Kind, known: Tokens, *, written: bool) -> Sequence[int]:
    """Return the numbers that can be used as that kind of token; none where there is none yet.

    For a write, `old` and `guessed` lie below a token with which a write was acknowledged: before
    that no fence can know better.
    """
    granted = sorted(set(known.granted))
    newest = granted[-1]
    if kind == "foreign":
        return [newest]
    if kind == "forged":
        return [newest + JUMP]
    top = known.accepted if written else newest
    if top is None:
        return []
    if kind == "old":
        return [token for token in granted if token < top]
    lowest = max(0, granted[0] - 1)
    return [n for n in range(max(lowest, top - _GAPS_MAX), top) if n not in set(granted)]


def _tried(kind: Kind, key: str, token: int, attempt: Attempt, seen: bool | None = None) -> Tried:
    return Tried(kind, key, token, attempt.outcome, attempt.error, attempt.op, seen)
