"""From events as other tools write them to a history.

What they mean is the same everywhere: an invocation, then `ok`, `fail` or `info` by the same
process.  The order of the file is the order of the events, so a time is kept only where it does not
contradict that order, and is otherwise the least that does not; no two events are at one instant.
Events of the nemesis are no operations, and an `info` of a process that has nothing open is a
remark: both are left out, and counted.
"""

from array import array
from collections.abc import Mapping
from typing import Any

from harness.errors import MalformedHistoryError
from harness.history import History
from harness.op import Op, OpType, Process

NEMESIS = "nemesis"
_TYPES: dict[str, OpType] = {"invoke": "invoke", "ok": "ok", "fail": "fail", "info": "info"}
_TIME_MAX_NS = 1 << 60
_ERRORS_MAX = 1000


class Recorder:
    """Takes events in the order of the file; `names` maps the file's names of operations to ours.

    `lines` are the lines of the ops, `skipped` counts what was left out.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.skipped: dict[str, int] = {}
        self.lines = array("Q")
        self._names = dict(names)
        self._ops: list[Op] = []
        self._open: dict[Process, str] = {}
        self._retired: set[Process] = set()
        self._texts: dict[str, str] = {}
        self._last_ns = -1

    def add(
        self,
        line: int,
        process: Process,
        kind: str,
        f: str,
        value: Any,
        *,
        key: str | None = None,
        token: int | None = None,
        error: str | None = None,
        time_ns: Any = None,
    ) -> None:
        """Take one event.  Raises MalformedHistoryError."""
        if process == NEMESIS:
            self.skip("operations of the nemesis")
            return
        if kind not in _TYPES:
            raise MalformedHistoryError(line, f"{kind!r} is no type: invoke, ok, fail or info")
        name = self._names.setdefault(f, f)
        if kind == "invoke":
            self._invoke(line, process, name)
        elif not self._complete(line, process, kind, name):
            return
        self._ops.append(
            Op(
                process=process,
                type=_TYPES[kind],
                f=name,
                key=None if key is None else self._same(key),
                value=value,
                token=token,
                time_ns=self._time(time_ns),
                error=None if error is None else self._same(error),
            )
        )
        self.lines.append(line)

    def skip(self, what: str) -> None:
        """Count something that is left out."""
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def history(self) -> History:
        """Return what was taken."""
        return History(self._ops)

    def _invoke(self, line: int, process: Process, f: str) -> None:
        if process in self._retired:
            raise MalformedHistoryError(
                line,
                f"process {process} invokes again after an info: its first operation may still run",
            )
        if process in self._open:
            raise MalformedHistoryError(
                line, f"process {process} invokes while its last operation is open"
            )
        self._open[process] = f

    def _complete(self, line: int, process: Process, kind: str, f: str) -> bool:
        invoked = self._open.pop(process, None)
        if invoked is None:
            if kind == "info":
                self.skip("infos of processes with nothing open")
                return False
            raise MalformedHistoryError(
                line, f"process {process} completes {f} without an invocation"
            )
        if invoked != f:
            raise MalformedHistoryError(
                line, f"process {process} completes {f} but invoked {invoked}"
            )
        if kind == "info":
            self._retired.add(process)
        return True

    def _time(self, told_ns: Any) -> int:
        self._last_ns += 1
        if isinstance(told_ns, int) and self._last_ns < told_ns < _TIME_MAX_NS:
            self._last_ns = told_ns
        return self._last_ns

    def _same(self, text: str) -> str:
        """Return one object for equal texts, of which a long history has very many."""
        if len(self._texts) >= _ERRORS_MAX:
            return self._texts.get(text, text)
        return self._texts.setdefault(text, text)
