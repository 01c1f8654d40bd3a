"""Jepsen's log as text, and `history.txt`: `... 4  :invoke  :write  3`, an operation a line.

Other lines of a log are not about operations.  An operation that ended in `fail` or `info` may show
its error in the place of its value (`:timed-out`).
"""

import io
import re
from typing import IO, Any

from harness.errors import MalformedHistoryError
from harness.importing.edn import Keyword, forms, plain
from harness.importing.jepsen import error_text
from harness.importing.record import Recorder
from harness.importing.source import lines

_EVENT = re.compile(
    r"(?:^|[\s:])(\d{1,18}|:[\w.-]+)\s+:(invoke|ok|fail|info)\s+:([^\s:]+)(?:\s+(.*))?$"
)
_HINT = b":"
_CACHE_MAX = 10_000


def read_log(stream: IO[bytes], recorder: Recorder) -> None:
    """Read the operations of a log.  Raises MalformedHistoryError."""
    known: dict[str, list[Any]] = {}
    number, found, ours = 0, False, False
    for number, raw, _ in lines(stream):
        ours = ours or b"jepsen" in raw
        if _HINT not in raw:
            continue
        event = _EVENT.search(raw.decode("utf-8", "backslashreplace").rstrip())
        if event is None:
            continue
        found = True
        process, kind, f, rest = event.groups()
        _add(recorder, number, process, kind, f, _parse(number, kind, (rest or "").strip(), known))
    if number and not found and not ours:
        raise MalformedHistoryError(
            1, "no operation in it: neither JSON lines, nor EDN, nor a log of Jepsen"
        )


def _parse(line: int, kind: str, text: str, known: dict[str, list[Any]]) -> list[Any]:
    """Return value and error as forms."""
    values = known.get(text)
    if values is not None:
        return values
    try:
        values = [form for _, form in forms(io.BytesIO(text.encode()), unwrap=False)]
    except MalformedHistoryError as error:
        if kind in ("invoke", "ok"):
            raise MalformedHistoryError(line, f"the value is no EDN: {error.reason}") from error
        values = [None, text]  # a message that was printed without quotes
    if len(known) < _CACHE_MAX:
        known[text] = values
    return values


def _add(recorder: Recorder, line: int, process: str, kind: str, f: str, values: list[Any]) -> None:
    value = values[0] if values else None
    error = error_text(values[1]) if len(values) > 1 else None
    if kind in ("fail", "info") and isinstance(value, Keyword):
        value, error = None, error_text(value if error is None else [value, error])
    recorder.add(
        line,
        process[1:] if process.startswith(":") else int(process),
        kind,
        f,
        plain(value),
        error=error,
    )
