"""Jepsen's histories as EDN: one vector of maps, or one map a line.

Knossos, which judges them there, reads a failed compare-and-set as one that did not happen, and a
read of nil as one that says nothing.
"""

import json
from typing import IO, Any

from harness.errors import MalformedHistoryError
from harness.importing.edn import forms, plain
from harness.importing.record import Recorder


def read_edn(stream: IO[bytes], recorder: Recorder) -> None:
    """Read maps with `:process`, `:type`, `:f`, `:value`.  Raises MalformedHistoryError."""
    for line, form in forms(stream, unwrap=True):
        if not isinstance(form, dict):
            raise MalformedHistoryError(line, f"{_short(form)} is no map, so no operation")
        process, kind, f = form.get("process"), form.get("type"), form.get("f")
        if not isinstance(process, int | str) or isinstance(process, bool):
            raise MalformedHistoryError(line, f"no process: {_short(form)}")
        if not isinstance(kind, str) or not isinstance(f, str):
            raise MalformedHistoryError(line, f"no :type or no :f: {_short(form)}")
        key, token = form.get("key"), form.get("token")
        recorder.add(
            line,
            process if isinstance(process, int) else str(process),
            kind,
            str(f),
            plain(form.get("value")),
            key=None if key is None else key_text(key),
            token=token if isinstance(token, int) else None,
            error=error_text(form.get("error")),
            time_ns=form.get("time"),
        )


def key_text(key: Any) -> str:
    """Return the key of an operation as text."""
    key = plain(key)
    return key if isinstance(key, str) else json.dumps(key)


def error_text(error: Any) -> str | None:
    """Return an error as text that begins with its code word: `[:timeout "x"]` is `timeout: x`."""
    if error is None:
        return None
    error = plain(error)
    parts = error if isinstance(error, list) else [error]
    texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
    return ": ".join(text.removeprefix(":") for text in texts)


def _short(form: Any) -> str:
    text = json.dumps(plain(form))
    return text if len(text) <= 80 else text[:80] + "…"
