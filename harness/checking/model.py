"""What the search must know of a model, and how to write one.

A model says, for each call of a history, what operation it was (a hashable `kind`), and what the
operation does to the state.  That is all that is needed; the rest makes the search faster::

    class Counter(SearchModel):
        \"\"\"A counter: `add` a number, `read` the sum.\"\"\"

        functions = ("add", "read")

        def start(self, initial):
            return initial or 0

        def kind(self, request):
            if request.f == "read":
                return ("read", request.result) if request.outcome == "ok" else None
            return ("add", request.value) if request.outcome != "fail" else None

        def passive(self, kind):
            return kind[0] == "read"

        def step(self, state, kind):
            f, number = kind
            if f == "add":
                return state + number
            return state if state == number else IMPOSSIBLE
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal


class _Impossible:
    def __repr__(self) -> str:
        return "IMPOSSIBLE"


IMPOSSIBLE = _Impossible()
Viable = Callable[[Any, int, Any], bool]


@dataclass(slots=True)
class Request:
    """One call as a model sees it; values are hashable (lists are `("list", items)`).

    `process` is who asked, `outcome` ok, fail or info; `result` and `told` (a token) are what was
    answered, `error` is the code word of a refusal.
    """

    f: str
    value: Any
    expected: Any
    result: Any
    token: int | None
    told: int | None
    process: Any
    outcome: Literal["ok", "fail", "info"]
    error: str | None


class SearchModel:
    """Base class of models for the search; the docstring of a model says what it is."""

    functions: tuple[str, ...] = ()
    asks_who = True
    """Whether `kind` looks at who asked; the search is faster for a model that does not."""

    def start(self, initial: Any) -> Hashable:
        """Return the state before the first operation."""
        return initial  # type: ignore[no-any-return] # a value of the history, frozen

    def kind(self, request: Request) -> Hashable | None:
        """Return what the call was, None when it says and does nothing."""
        raise NotImplementedError

    def passive(self, kind: Any) -> bool:
        """Return whether operations of this kind never change the state."""
        return False

    def step(self, state: Any, kind: Any) -> Any:
        """Return the state after the operation, or IMPOSSIBLE.

        An operation of unknown outcome is only asked for when it takes effect.
        """
        raise NotImplementedError

    def wants(self, kind: Any) -> tuple[Hashable, ...] | None:
        """Return the only states in which the operation is possible; None: cannot be listed.

        An empty tuple: it is possible in every state, and the state before makes no difference to
        the state after.
        """
        return None

    def gives(self, kind: Any) -> Hashable | None:
        """Return the only state that the operation can leave; None: it depends."""
        return None

    def look_ahead(self, actions: Sequence[Any]) -> Viable:
        """Return a test whether a state can still lead to what pending operations returned."""
        return _always


def _always(*_: Any) -> bool:
    return True
