"""The short spellings of the command line: `valkey[fenced=true]` and `pause:who=holder,for=2s`.

Values are `true`, `false`, whole numbers, numbers, and otherwise text; quotes make any value text.
A run file may use the same spellings, and both end in the same mapping that the long form gives.
"""

import re
from typing import Any

from harness.mistakes import show

Scalar = bool | int | float | str
_TARGET = re.compile(r"\s*([^\[\]]*?)\s*(?:\[(.*)\])?\s*\Z", re.DOTALL)
_ITEM = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_][\w-]*)\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^,\[\]"']*?)|(?P<rest>[^,]*))\s*(?P<end>,|\Z)"""
)
_OPTIONS = re.compile(r":(?=\s*[A-Za-z_][\w-]*\s*=)")
_INT = re.compile(r"[-+]?\d{1,30}\Z")
_FLOAT = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?\Z")


def parse_scalar(text: str) -> Scalar:
    """Return the value that an unquoted word stands for."""
    if text in {"true", "false"}:
        return text == "true"
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if _INT.match(text):
        return int(text) if len(text) < 40 else text
    return float(text) if _FLOAT.match(text) else text


def shown_scalar(value: object) -> str:
    """Return the word that stands for a value: text in quotes where it would be read otherwise."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if parse_scalar(value) == value == value.strip() and not set(value) & set(",[]\"'"):
        return value
    quote = "'" if '"' in value else '"'
    return f"{quote}{value}{quote}"


def parse_target(text: str) -> dict[str, Any]:
    """Return `name` and `options` of `name[opt=value,...]`.  Raises ValueError."""
    match = _TARGET.match(text)
    if match is None or not match.group(1):
        raise ValueError(
            f"found {show(text)}; allowed: a name, or a name with options, like etcd[nodes=3]"
        )
    name, options = match.groups()
    return {"name": name, "options": {} if options is None else _options(options, "etcd[nodes=3]")}


def parse_fault(text: str) -> dict[str, Any]:
    """Return the mapping of `kind:opt=value,...` with its `kind`.  Raises ValueError."""
    kind, *rest = _OPTIONS.split(text, maxsplit=1)
    example = "pause:who=holder,at=before-write,for=2.5leases"
    if not kind.strip() or "=" in kind:
        raise ValueError(f"found {show(text)}; allowed: a kind with options, like {example}")
    options = _options(rest[0], example) if rest else {}
    if "kind" in options:
        raise ValueError(f"found {show(text)}: the kind stands before the colon, like {example}")
    return {"kind": kind.strip(), **options}


def _options(text: str, example: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None or match["name"] is None:
            item = text[position:].split(",", 1)[0]
            raise ValueError(
                f"found {show(item.strip())} where option=value is needed; allowed: {example}"
            )
        name, value = match["name"], match["value"]
        if not value:
            raise ValueError(f"option {name} has no value; allowed: {name}=value, like {example}")
        if name in found:
            raise ValueError(f"option {name} is given twice; allowed: once")
        found[name] = parse_scalar(value)
        position = match.end()
    return found
