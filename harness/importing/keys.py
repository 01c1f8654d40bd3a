"""Independent keys: `[key value]` tuples as values, and what to do with them.

Jepsen writes an operation on one of many independent objects with a tuple as its value, which looks
like any other vector.  A read tells them apart: it is invoked with no value, or with `[key nil]`.
Where nothing is read, only a compare-and-set of `[key [old new]]` does.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from harness.errors import MalformedHistoryError
from harness.op import Op


def split_keys(ops: list[Op], lines: Sequence[int], *, always: bool = False) -> None:
    """Move the keys of tuples to `Op.key`, in place.  Raises MalformedHistoryError.

    `always`: the tool that wrote this knows no other values.
    """
    if not (always or are_tuples(ops)):
        return
    names: dict[str, Any] = {}
    pending: dict[int | str, str] = {}
    for i, op in enumerate(ops):
        pair = op.value if isinstance(op.value, list) and len(op.value) == 2 else None
        if op.type == "invoke":
            if pair is None:
                raise MalformedHistoryError(
                    lines[i], f"{op.f} of {_show(op.value)}: not [key value] like the others"
                )
            key = pending[op.process] = _name(names, pair[0], lines[i])
            ops[i] = msgspec.structs.replace(op, key=key, value=pair[1])
            continue
        key = pending.pop(op.process, "nothing")
        same = pair is not None and _name(names, pair[0], lines[i]) == key
        if op.type == "ok" and not same:
            raise MalformedHistoryError(
                lines[i], f"{op.f} was invoked on {key} and ends with {_show(op.value)}"
            )
        value = pair[1] if pair is not None and same else None
        ops[i] = msgspec.structs.replace(op, key=key, value=value)


def are_tuples(ops: Sequence[Op]) -> bool:
    """Whether the values of a history are tuples of independent keys."""
    tuples = False
    for op in ops:
        if op.key is not None:
            return False
        if op.type != "invoke" or op.f not in ("read", "cas"):
            continue
        pair = op.value if isinstance(op.value, list) and len(op.value) == 2 else None
        if op.f == "read":
            return pair is not None and not isinstance(pair[0], list | dict)
        if pair is None or not isinstance(pair[1], list):
            return False
        tuples = True
    return tuples


def _name(names: dict[str, Any], key: Any, line: int) -> str:
    """Return the text of a key; two keys that only differ in kind must not become one."""
    text = key if isinstance(key, str) else json.dumps(key)
    if type(names.setdefault(text, key)) is not type(key):
        raise MalformedHistoryError(line, f"key {_show(key)} is a number here and text elsewhere")
    return text


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "…"
