"""Atlasmart: our own lock service and store, small enough to be read in one sitting.

It is the reference pair: the lock server gives leases with fencing tokens that never go back, also
across kill -9 and restart; the store, with `fence=checked`, refuses a token below the highest that
it has accepted, and keeps that token in the same record as the value.  With `fence=none` (the
default) it takes every write, as most storage does: a frozen lock holder corrupts that pair.  With
`persist=value-only` it has a known bug: a restart forgets the highest token.

Both speak one JSON line a request over TCP (`wire`), and keep an append-only file (`journal`).  The
store's file is also its log of accepts and refusals, in the order in which it decided.

The target is loaded on first use: the servers run in this package too, and start in half the time
without what only the harness needs.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "Atlasmart":
        from targets.atlasmart.target import Atlasmart

        return Atlasmart
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
