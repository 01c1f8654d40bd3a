"""How checkers speak: lengths of time, values of a foreign system, counts, refusals."""

import json
from typing import Any

from harness.history import Call

_SHOWN_MAX = 60


def length(time_ns: float) -> str:
    """Return a length of time for people, in ms below one second, else in seconds."""
    ms = time_ns / 1e6
    if abs(ms) < 10:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if abs(ms) < 1000 else f"{ms / 1000:.2f} s"


def instant(time_ns: float) -> str:
    """Return a time of the run for people: seconds with three decimals."""
    return f"{time_ns / 1e9:.3f} s"


def show(value: Any) -> str:
    """Return a value that a target gave, on one line and not too long."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 write` or `3 writes`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def with_token(call: Call) -> str:
    """Return ` with token 34`, or nothing where no token was used."""
    return "" if call.token is None else f" with token {call.token}"


def refusal(call: Call) -> str | None:
    """Return the code word of a refused call (`held`, `not-holder`, `fenced`, ...), else None."""
    if call.outcome != "fail":
        return None
    return (call.error or "").split(":", 1)[0].strip()


def made_up(call: Call) -> bool:
    """Whether an adversary was told to renew or release what it does not have."""
    return isinstance(call.value, dict) and call.value.get("made_up") is True


def said_held(call: Call) -> bool:
    """Whether a lease check asked the service, and the answer was that the caller holds it."""
    asked, answer = call.value, call.result
    return (
        isinstance(asked, dict)
        and asked.get("ask") is True
        and isinstance(answer, dict)
        and answer.get("held") is True
    )


def done_ns(call: Call) -> int:
    """Return when a call ended that is known to have ended (`ok` or `fail`)."""
    assert call.ret_ns is not None
    return call.ret_ns


def ended(call: Call) -> int | float:
    """Return when a call ended, infinity when its outcome is not known."""
    return float("inf") if call.ret_ns is None else call.ret_ns
