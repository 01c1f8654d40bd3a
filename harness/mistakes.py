"""Mistakes of a user, each as: where, what was found, what is allowed.

Everything that reads a user's input collects mistakes instead of stopping at the first one, so that
a run file with three of them is corrected in one go.  The words are those of a person who has never
seen the validator: no type names of Python, no error codes.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]
_SHOWN_MAX = 60

# What a value of the wrong type should have been, by pydantic's name of the error.
_TYPES = {
    "string": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a mapping of `key: value`",
    "model": "a mapping of `key: value`",
    "list": "a list",
    "tuple": "a list",
}
_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
    "literal_error": ("expected", ""),
    "enum": ("expected", ""),
    "string_pattern_mismatch": ("pattern", "a text that matches"),
    "string_too_short": ("min_length", "a text of at least this many characters:"),
    "string_too_long": ("max_length", "a text of at most this many characters:"),
}


@dataclass(frozen=True)
class Mistake:
    """One mistake: `path` leads to it from the top of the input; `text` is for a person."""

    path: Path
    text: str
    at_key: bool = False

    def under(self, *prefix: str | int) -> "Mistake":
        """Return the same mistake seen from further up."""
        return replace(self, path=(*prefix, *self.path))


def dotted(path: Path) -> str:
    """Return a path as people write it: `faults[1].for`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def show(value: object) -> str:
    """Return a value as a run file would spell it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def nearest(word: str, words: Iterable[str]) -> str:
    """Return `did you mean ...? ` for the word that is nearest to `word`, or nothing."""
    import difflib

    spelled = {known.lower(): known for known in words}
    found = difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    return f"did you mean {spelled[found[0]]}? " if found else ""


def unknown(what: str, word: str, words: Iterable[str]) -> str:
    """Return the sentence for a name that does not exist; it lists those that do."""
    known = sorted(words)
    listed = ", ".join(known) if known else "none"
    return f"unknown {what} {show(word)}; {nearest(word, known)}allowed: {listed}"


def from_pydantic(
    error: "ValidationError", known: Callable[[Path], Iterable[str]]
) -> list[Mistake]:
    """Return what pydantic found; `known(path)` names the keys that a mapping may have."""
    return [_translate(item, known) for item in error.errors(include_url=False)]


def _translate(item: "ErrorDetails", known: Callable[[Path], Iterable[str]]) -> Mistake:
    path: Path = item["loc"]
    kind = item["type"]
    context: dict[str, Any] = item.get("ctx", {})
    if kind == "extra_forbidden":
        return Mistake(path, unknown("key", str(path[-1]), known(path[:-1])), at_key=True)
    if kind == "missing":
        return Mistake(path, "missing; it has no default")
    if kind in {"value_error", "assertion_error"}:
        return Mistake(path, str(context["error"]))
    return Mistake(path, f"found {show(item['input'])}; allowed: {_allowed(kind, context, item)}")


def _allowed(kind: str, context: Mapping[str, Any], item: "ErrorDetails") -> str:
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        text = str(context[name])
        # pydantic writes choices as Python spells them: 'a', 'b' or 'c'
        return f"{words} {text}".strip().replace("'", "")
    stem = kind.split("_", 1)[0]
    if stem in _TYPES and kind.endswith(("_type", "_parsing", "_from_float")):
        return _TYPES[stem]
    return item["msg"]
