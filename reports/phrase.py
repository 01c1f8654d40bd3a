"""Calls in words: who asked for what, what came of it, and what nobody knows.

An outcome is said as carefully as it is known: accepted, refused without effect, or unknown.
"""

from harness.history import Call
from reports.reading import member, refusal
from reports.text import clean, quoted, show, who

GLYPHS = {"invoke": "→", "ok": "✓", "fail": "✕", "info": "?", "open": "?"}


def with_token(token: int | None) -> str:
    """`with token 33`, or that there was none."""
    return "without a token" if token is None else f"with token {token}"


def owner_words(worker: str, token: int | None) -> str:
    """A worker with the token of its grant: `w1 (token 33)`."""
    name = who(worker)
    return name if token is None else f"{name} (token {token})"


def refusal_words(call: Call) -> str:
    """Why the resource refused a write, in plain words with the system's own in brackets."""
    said = clean(call.error or "no reason given", 160)
    known = {"fenced": "it has seen a higher token", "not-holder": "the writer is not the holder"}
    meaning = known.get(refusal(call) or "")
    return said if meaning is None else f"{meaning} ({said})"


def outcome_words(call: Call) -> str:
    """The outcome of a call for people: what happened, or why nobody knows."""
    error = f": {clean(call.error, 160)}" if call.error else ""
    return {
        "ok": "done",
        "fail": f"refused, without effect{error}",
        "info": f"nobody knows whether it happened{error}",
        "open": "it was never answered",
    }[call.outcome]


def describe(call: Call) -> str:
    """One sentence about a call: who asked for what, and what came of it."""
    return f"{who(call.worker)} {_asked(call)}{_answered(call)}."


def _asked(call: Call) -> str:
    key = "" if call.key is None else f" {quoted(call.key)}"
    match call.f:
        case "acquire":
            return f"asks for the lock{key}"
        case "keep":
            return f"renews the lease of its place in the queue for{key or ' the lock'}"
        case "renew":
            return f"renews its lease on{key or ' the lock'} {with_token(call.token)}"
        case "release":
            return f"releases the lock{key} {with_token(call.token)}"
        case "check":
            return f"asks whether it still holds the lock{key}"
        case "read":
            return f"reads{key}"
        case "write":
            return (
                f"writes {quoted(call.value)} to{key or ' the resource'} {with_token(call.token)}"
            )
    value = "" if call.value is None else f" {quoted(call.value)}"
    token = "" if call.token is None else f" {with_token(call.token)}"
    return f"calls {clean(call.f, 60)}{key}{value}{token}"


def _answered(call: Call) -> str:
    if call.outcome != "ok":
        return f": {outcome_words(call)}"
    match call.f:
        case "acquire":
            return f" and gets it {with_token(call.result_token)}"
        case "check":
            held = {True: "yes", False: "no"}.get(member(call.result, "held"), "not asked")
            return f": {held}"
        case "read" if call.result is None:
            return ": nothing was written yet"
        case "read":
            return f" and sees {quoted(call.result)}, written {with_token(call.result_token)}"
        case "renew" | "release" | "write":
            return ": accepted"
    return "" if call.result is None else f": {show(call.result)}"
