"""The store: a register per key that may check fencing tokens.

Value and highest token are one record of one file, on the disk before the write is acknowledged: a
store that keeps them apart can lose one of them, and forgets its fence.  Refusals are recorded too,
so the file is the store's own account of what it decided, in order.

With `value-only` the store has exactly that bug, on purpose: the highest token lives in memory
alone, so after a restart it obeys whoever comes first.

Run as `python -P -m targets.atlasmart.stored ADDRESS PORT DATA none|checked PERSIST`.
"""

import sys
from pathlib import Path
from typing import Any

from harness.target import Accept, RefusedError
from targets.atlasmart.journal import JOURNAL, Journal, records
from targets.atlasmart.wire import Read, Write, serve


class Registers:
    """The last accepted write and the highest accepted token of every key, and the journal."""

    def __init__(self, path: Path, *, checked: bool, remembers: bool = True) -> None:
        """`remembers`: the highest tokens outlive a restart."""
        self._checked = checked
        self._current: dict[str, Accept] = {}
        self._highest: dict[str, int] = {}
        for decision in records(path, Accept):
            self._apply(decision)
        if not remembers:
            self._highest.clear()
        self._journal = Journal(path)

    def _apply(self, decision: Accept) -> None:
        if not decision.accepted:
            return
        self._current[decision.key] = decision
        if decision.token is not None:
            self._highest[decision.key] = max(
                decision.token, self._highest.get(decision.key, decision.token)
            )

    def handle(self, request: Read | Write) -> Any:
        """Decide one request.  Raises RefusedError, JournalError."""
        before = self._current.get(request.key)
        old = None if before is None else {"value": before.value, "token": before.token}
        if isinstance(request, Read):
            return old
        key, token = request.key, request.token
        highest = self._highest.get(key)
        stale = token is None or (highest is not None and token < highest)
        decision = Accept(
            key=key,
            value=request.value,
            token=token,
            accepted=not (self._checked and stale),
            highest=highest,
        )
        self._journal.append(decision)
        self._apply(decision)
        if not decision.accepted:
            raise RefusedError("fenced", f"token {token} against {highest}, the highest accepted")
        return old


def main(address: str, port: str, data: str, fence: str, persist: str) -> None:
    """Serve until killed."""
    registers = Registers(
        Path(data) / JOURNAL, checked=fence == "checked", remembers=persist == "value-and-fence"
    )
    serve(address, int(port), Read | Write, registers.handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
