"""Other people's histories, read into ours.

::

    jsonl        ours: one op as a JSON object a line
    jepsen       EDN: one vector, or one map a line; or lines of Jepsen's log
    porcupine    the logs of Porcupine's tests: key-value maps, etcd as Jepsen's log
    maelstrom    Jepsen's files with Maelstrom's keys and error codes

Each may be packed with gzip or zstd.  Tools differ in what they take a failed compare-and-set and a
read of nil for, and a verdict can hang on it.  Without word from the user a history is read as the
tool reads it that wrote it, and the verdict says how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from harness.errors import MalformedHistoryError
from harness.history import History
from harness.importing import maelstrom, porcupine
from harness.importing.jepsen import read_edn
from harness.importing.jepsen_log import read_log
from harness.importing.jsonl import read_jsonl
from harness.importing.keys import are_tuples, split_keys
from harness.importing.readings import CasFail, NilRead, mute, silence
from harness.importing.record import Recorder
from harness.importing.source import Syntax, syntax, unpacked
from harness.op import Op

Format = Literal["jsonl", "jepsen", "porcupine", "maelstrom"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Imported:
    """A history as read: `lines` are the lines of its ops, `skipped` counts what was left out."""

    history: History
    lines: Sequence[int]
    format: Format
    skipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """The names of the operations in it."""
        return frozenset(op.f for op in self.history.ops)

    @property
    def initial(self) -> Any:
        """What a register of this format begins as, when nobody says otherwise."""
        return porcupine.KV_INITIAL if porcupine.is_kv(self.history.ops) else None

    @property
    def cas_fail(self) -> CasFail:
        """What a failed compare-and-set means to the tool that wrote it."""
        return "differed" if self.format == "porcupine" else "did-not-happen"

    def nil_read(self, initial: Any) -> NilRead:
        """What a read of nil means: nil can only be the value where a register begins as nil."""
        foreign = self.format in ("jepsen", "maelstrom")
        return "anything" if foreign and initial is not None else "value"

    def read_as(self, cas_fail: CasFail, nil_read: NilRead) -> dict[str, int]:
        """Take these readings, in place; return how many operations say nothing in them."""
        return silence(_mutable(self.history), mute(cas_fail, nil_read))


def recognise(path: Path) -> Syntax:
    """Tell how a file is written.  Raises OSError, UsageError, MalformedHistoryError."""
    with unpacked(path) as stream:
        return syntax(stream)


def load(
    path: Path, wanted: Format | None = None, names: Mapping[str, str] | None = None
) -> Imported:
    """Read a history; `wanted` None: whatever it is; `names` maps its names of operations to ours.

    Raises OSError, UsageError, and MalformedHistoryError with the line and the reason.
    """
    with unpacked(path) as stream:
        written: Syntax = "jsonl" if wanted == "jsonl" else syntax(stream)
        if written == "jsonl" and wanted not in (None, "jsonl"):
            raise MalformedHistoryError(1, f"JSON lines, and no history of {wanted}")
        if written == "jsonl":
            history = read_jsonl(stream, names or {})
            lines: Sequence[int] = range(1, len(history.ops) + 1)
            skipped: Mapping[str, int] = {}
        else:
            recorder = Recorder(names or {})
            reader = read_edn if written == "edn" else read_log
            reader(stream, recorder)
            history, lines, skipped = recorder.history(), recorder.lines, recorder.skipped
    found = wanted or _format(history.ops, written)
    always = found == "maelstrom" and maelstrom.is_lin_kv(history.ops)
    split_keys(_mutable(history), lines, always=always)
    return Imported(history, lines, found, skipped)


def _mutable(history: History) -> list[Op]:
    """The ops, to be changed in place: a second copy of a long history does not fit."""
    assert isinstance(history.ops, list)
    return history.ops


def _format(ops: Sequence[Op], written: Syntax) -> Format:
    """Whose history it is; Porcupine's are the ones that are published as bare logs."""
    if written == "jsonl":
        return "jsonl"
    if written == "log" or porcupine.is_kv(ops):
        return "porcupine"
    named = are_tuples(ops) and maelstrom.is_named_so(ops)
    return "maelstrom" if named else "jepsen"
