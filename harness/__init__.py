"""vanwinkle: freeze a lock holder, and prove what it does to the data.

This package is the core and imports none of the others.  Names are loaded on first use, so that
`winkle --help` does not pay for what it does not need.
"""

import importlib
from typing import Any

from harness._version import __version__

_PUBLIC = {
    "run": "harness.api",
    "RunResult": "harness.api",
    "Grant": "harness.target",
    "Stored": "harness.target",
    "Server": "harness.target",
    "Cluster": "harness.target",
    "Accept": "harness.target",
    "ErrorRule": "harness.target",
    "RefusedError": "harness.target",
}

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604 - names are resolved by __getattr__


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
