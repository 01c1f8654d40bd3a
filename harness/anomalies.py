"""The catalogue of anomalies: what each finding says, where it comes from and how to fix it.

A verdict names its findings with these words and no others.  The catalogue is data
(`anomalies.yaml`), in the order of gravity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap

from harness.errors import UsageError
from harness.mistakes import unknown

_WIDTH = 96


@dataclass(frozen=True)
class Page:
    """One anomaly.

    `says` is one sentence; `seeds` the ways in which real systems came to it; `drawing` the
    smallest case as a picture, time to the right; `fix` what the author of the system can do.
    """

    name: str
    says: str
    seeds: tuple[str, ...]
    drawing: str
    fix: tuple[str, ...]


@cache
def catalogue() -> Mapping[str, Page]:
    """Return every anomaly by name, gravest first."""
    import yaml

    entries = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    return {
        name: Page(
            name, entry["says"], tuple(entry["seeds"]), entry["drawing"], tuple(entry["fix"])
        )
        for name, entry in entries.items()
    }


def find(name: str) -> Page:
    """Return the page of an anomaly.  Raises UsageError that names the nearest one."""
    known = catalogue()
    if name not in known:
        raise UsageError(unknown("anomaly", name, known))
    return known[name]


def gravity(name: str) -> int:
    """Return the rank of an anomaly, 0 for the gravest; unknown names come last."""
    names = list(catalogue())
    return names.index(name) if name in names else len(names)


def lines(page: Page) -> list[str]:
    """Return the page as lines of text."""
    return [
        page.name,
        "",
        *wrap(page.says, width=_WIDTH),
        "",
        *(f"    {line}" for line in page.drawing.splitlines()),
        "",
        "How it comes about",
        *(line for seed in page.seeds for line in _item(seed)),
        "",
        "How to fix it",
        *(line for step in page.fix for line in _item(step)),
    ]


def _item(text: str) -> list[str]:
    return wrap(text, width=_WIDTH, initial_indent="  - ", subsequent_indent="    ")
