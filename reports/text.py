"""Text for people, made from values that foreign systems chose.

A target can answer with anything: a megabyte, an escape sequence for the terminal, a right-to-left
override that makes a line read backwards, half a surrogate pair.  None of it may act; all of it may
be looked at.  So control characters are written out, and long text is cut with its length said.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

VALUE_LIMIT = 120
SENTENCE_LIMIT = 2_000

# C0 and C1 controls, line and paragraph separators, bidirectional controls, surrogates and
# non-characters: invisible, able to change how the rest is read, or forbidden in XML 1.0.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_SHOWN = {"\n": "⏎", "\r": "␍", "\t": " "}


def clean(text: str, limit: int = SENTENCE_LIMIT) -> str:
    """Return `text` on one line, safe to print and valid in XML, at most `limit` characters of it.

    What was cut off is said: `… (1,048,576 characters)`.
    """
    shown = _UNSAFE.sub(_escape, text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def clean_block(text: str, limit: int = SENTENCE_LIMIT) -> str:
    """Return `text` like `clean`, with its line breaks kept."""
    lines = text[:limit].replace("\r\n", "\n").split("\n")
    shown = "\n".join(_UNSAFE.sub(_escape, line) for line in lines)
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHOWN.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def show(value: Any, limit: int = VALUE_LIMIT) -> str:
    """Return a recorded value as people write it: strings bare, everything else as JSON."""
    if isinstance(value, str):
        return clean(value, limit)
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__} that cannot be shown"
    return clean(text, limit)


def brief(value: Any, limit: int = 14) -> str:
    """Return the beginning of a recorded value, where there is room for a few letters only."""
    text = show(value, limit + 1)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def quoted(value: Any, limit: int = 40) -> str:
    """Return a recorded value in quotation marks, for use inside a sentence."""
    return f"“{show(value, limit)}”"


def at(time_ns: int) -> str:
    """Return a time of the run: seconds with three decimals."""
    return f"{time_ns / 1e9:.3f} s"


def lasting(length_ns: float) -> str:
    """Return a length in the unit that reads best: `840 µs`, `12 ms`, `3.05 s`, `12 min 5 s`."""
    seconds = abs(length_ns) / 1e9
    sign = "-" if length_ns < 0 else ""
    if seconds < 0.001:
        return f"{sign}{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{sign}{seconds * 1e3:.3g} ms"
    if seconds < 600:
        return f"{sign}{f'{seconds:.2f}'.rstrip('0').rstrip('.')} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{sign}{minutes} min {rest} s" if rest else f"{sign}{minutes} min"


def who(worker: str) -> str:
    """Return a worker's name; imported histories know only the number of a process."""
    return f"process {worker}" if worker.isdigit() else clean(worker, 60)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 write`, `1,204 writes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listing(words: Sequence[str]) -> str:
    """Return words as a sentence lists them: `w1, w2 and w3`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
