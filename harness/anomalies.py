"""The catalogue of anomalies: what each finding says, where it comes from and how to fix it.

A verdict names its findings with these words and no others.  The order of the catalogue is the order
of gravity: what damaged data comes before what endangers it, and that before what only delays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from harness.errors import UsageError
from harness.mistakes import unknown


@dataclass(frozen=True)
class Page:
    """One anomaly.

    `says` is one sentence; `seeds` the ways in which real systems came to it; `drawing` a picture of
    the smallest case, time to the right; `fix` what the author of the system can do.
    """

    name: str
    says: str
    seeds: tuple[str, ...]
    drawing: str
    fix: tuple[str, ...]


@cache
def catalogue() -> Mapping[str, Page]:
    """Return every anomaly by name, gravest first."""
    from harness.catalogue import data, fencing, leases

    return {page.name: page for page in (*fencing.PAGES, *leases.PAGES, *data.PAGES)}


def page(name: str) -> Page:
    """Return the page of an anomaly.  Raises UsageError that names the nearest one."""
    known = catalogue()
    if name not in known:
        raise UsageError(unknown("anomaly", name, known))
    return known[name]


def gravity(name: str) -> int:
    """Return the rank of an anomaly, 0 for the gravest; unknown names come last."""
    return list(catalogue()).index(name) if name in catalogue() else len(catalogue())


def lines(page: Page) -> list[str]:
    """Return the page as lines of text."""
    return [
        page.name,
        "",
        page.says,
        "",
        *(f"    {line}" for line in page.drawing.strip("\n").splitlines()),
        "",
        "How it comes about",
        *(f"  - {seed}" for seed in page.seeds),
        "",
        "How to fix it",
        *(f"  - {step}" for step in page.fix),
    ]
