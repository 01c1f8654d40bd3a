"""`winkle list` and `winkle explain`: what there is, with options, defaults and meaning."""

from typing import Any

import msgspec

from harness import anomalies
from harness.errors import UsageError
from harness.mistakes import unknown
from harness.plugins import Description, Kind, describe
from harness.terminal import out, paint, printable, table

_PLUGINS: dict[str, Kind] = {
    "targets": "targets",
    "faults": "faults",
    "workloads": "workloads",
}


def show(what: str, *, as_json: bool) -> int:
    """Print what there is of a kind.  Raises UsageError."""
    if what in _PLUGINS:
        return list_plugins(_PLUGINS[what], as_json=as_json)
    if what == "suites":
        return list_suites(as_json=as_json)
    if what == "anomalies":
        return list_anomalies(as_json=as_json)
    raise UsageError(unknown("list", what, [*_PLUGINS, "suites", "anomalies"]))


def list_plugins(kind: Kind, *, as_json: bool) -> int:
    """Print the targets, faults or workloads with their options."""
    found = describe(kind)
    if as_json:
        _json([msgspec.to_builtins(one) for one in found])
        return 0
    for one in found:
        for line in _plugin_lines(one):
            out(line)
    return 0


def list_suites(*, as_json: bool) -> int:
    """Print the shipped suites."""
    from harness.suite import shipped

    found = shipped()
    if as_json:
        _json([{"name": name, "text": text} for name, text in found.items()])
    else:
        _pairs(found)
    return 0


def list_anomalies(*, as_json: bool) -> int:
    """Print the catalogue of anomalies, gravest first."""
    pages = anomalies.catalogue()
    if as_json:
        _json([msgspec.to_builtins(page) for page in pages.values()])
    else:
        _pairs({name: page.says for name, page in pages.items()})
    return 0


def explain(name: str) -> int:
    """Print the page of one anomaly.  Raises UsageError that names the nearest one."""
    head, *rest = anomalies.lines(anomalies.find(name))
    out(paint(head, "bold"))
    for line in rest:
        out(line)
    return 0


def _plugin_lines(one: Description) -> list[str]:
    text = f"cannot be loaded: {one.trouble}" if one.trouble else one.text
    lines = [f"{paint(one.name, 'bold')}  {printable(text)}"]
    if one.options:
        rows = [
            (f"  {option.name}", option.allowed, option.default, option.text)
            for option in one.options
        ]
        lines += table(("  option", "allowed", "default", "meaning"), rows)
    return lines


def _pairs(found: dict[str, str]) -> None:
    width = max((len(name) for name in found), default=0)
    for name, text in found.items():
        out(f"{name.ljust(width)}  {text}")


def _json(value: Any) -> None:
    out(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
