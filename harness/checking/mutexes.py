"""Locks without tokens, as models for the search.

The owner is the process that asked.  A failed acquire is read as "busy", a failed release as "not
the owner", only where the error says so (`held`, `not-holder`); else it did not happen.
"""

from collections.abc import Hashable
from typing import Any

from harness.checking.model import IMPOSSIBLE, Request, SearchModel


class MutexModel(SearchModel):
    """A plain mutex: `acquire` when it is free, `release` when it is taken, by anybody."""

    functions = ("acquire", "release")
    asks_who = False

    def start(self, initial: Any) -> Hashable:
        """Return that it is free."""
        return None

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        if request.outcome == "fail":
            return ("busy", None) if request.error == "held" else None
        return (request.f, None)

    def passive(self, kind: Any) -> bool:
        """Return whether it was refused."""
        return kind[0] in ("busy", "foreign")

    def step(self, state: Any, kind: Any) -> Any:
        """Return who holds it afterwards."""
        f = kind[0]
        if f == "acquire":
            return "held" if state is None else IMPOSSIBLE
        if f == "release":
            return IMPOSSIBLE if state is None else None
        return IMPOSSIBLE if state is None else state


class OwnerMutexModel(MutexModel):
    """A mutex that only its owner may release."""

    asks_who = True

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was, and of whom."""
        if request.outcome == "fail":
            name = {"held": "busy", "not-holder": "foreign"}.get(request.error or "")
            return (name, request.process) if name else None
        return (request.f, request.process)

    def step(self, state: Any, kind: Any) -> Any:
        """Return who holds it afterwards."""
        f, process = kind
        if f == "acquire":
            return process if state is None else IMPOSSIBLE
        if f == "release":
            return None if state == process and state is not None else IMPOSSIBLE
        if f == "busy":
            return IMPOSSIBLE if state is None else state
        return IMPOSSIBLE if state == process else state


class ReentrantMutexModel(OwnerMutexModel):
    """A mutex whose owner may acquire it again; it is free after as many releases."""

    def start(self, initial: Any) -> Hashable:
        """Return that it is free."""
        return (None, 0)

    def step(self, state: Any, kind: Any) -> Any:
        """Return who holds it afterwards, and how often."""
        owner, depth = state
        f, process = kind
        mine = depth > 0 and owner == process
        if f == "acquire":
            return (process, depth + 1) if mine or not depth else IMPOSSIBLE
        if f == "release":
            if not mine:
                return IMPOSSIBLE
            return (process, depth - 1) if depth > 1 else (None, 0)
        if f == "busy":
            return state if depth and not mine else IMPOSSIBLE
        return IMPOSSIBLE if mine else state


class SemaphoreModel(MutexModel):
    """A semaphore of `--initial` permits: `acquire` takes one, `release` gives one back."""

    def __init__(self, permits: int = 1) -> None:
        self._permits = permits

    def start(self, initial: Any) -> Hashable:
        """Return (free permits, all permits); `initial` is the number of all."""
        permits = self._permits if initial is None else int(initial)
        return (permits, permits)

    def step(self, state: Any, kind: Any) -> Any:
        """Return (free permits, all permits) afterwards."""
        free, every = state
        f = kind[0]
        if f == "release":
            return (free + 1, every) if free < every else IMPOSSIBLE
        if f == "busy":
            return IMPOSSIBLE if free else state
        return (free - 1, every) if free else IMPOSSIBLE


class TokenLockModel(SearchModel):
    """A lock whose grants carry rising tokens; with `expires` a hold may end by itself.

    An acquire of unknown outcome got a token that nobody knows, above all earlier ones: the state
    is (holder, highest, free tokens at least), and a lost grant is a holder without a name.
    """

    functions = ("acquire", "renew", "check", "release")
    asks_who = False

    def __init__(self, *, expires: bool) -> None:
        self._expires = expires

    def start(self, initial: Any) -> Hashable:
        """Return (holder's token, highest token so far)."""
        return (None, 0)

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was."""
        f, token = request.f, request.token
        if token is None and f != "acquire":
            return None
        if request.outcome == "fail":
            word = {"held": "busy", "not-holder": "foreign"}.get(request.error or "")
            return (word, token) if word else None
        if f == "acquire":
            return ("lost", None) if request.outcome == "info" else ("acquire", request.told)
        if f == "check":
            held = dict(request.result[1]).get("held", True) if _is_map(request.result) else True
            if held != ("bool", True) and held is not True:
                return ("foreign", token) if held == ("bool", False) else None
        if f != "release" and request.outcome == "info":
            return None
        return ("release" if f == "release" else "hold", token)

    def step(self, state: Any, kind: Any) -> Any:
        """Return the holder and the highest token afterwards."""
        holder, highest = state
        f, token = kind
        if f == "acquire":
            free = holder is None or self._expires
            return (token, token) if free and token > highest else IMPOSSIBLE
        if f == "lost":
            free = holder is None or self._expires
            return ("lost", highest + 1) if free else IMPOSSIBLE
        if f == "busy":
            return IMPOSSIBLE if holder is None else state
        if f == "foreign":
            if holder != token:
                return state
            return (None, highest) if self._expires else IMPOSSIBLE
        if holder != token:
            return IMPOSSIBLE
        return (None, highest) if f == "release" else state


def _is_map(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[0] == "map"
