"""Maelstrom's histories: Jepsen's files, with error codes that say what a refusal proves.

Its workload `lin-kv` reads, writes and compares-and-sets keys, always as `[key value]`.  A failed
compare-and-set proves something about the value only with the error of a comparison; one that was
refused because a node was unavailable proves nothing.
"""

from collections.abc import Sequence

from harness.op import Op

LIN_KV = frozenset({"read", "write", "cas"})
# The codes 22 and 20 of its error table: the value differed, or there was none.
COMPARED = frozenset({"precondition-failed", "key-does-not-exist"})
# The names of all errors that are of this tool alone.
ERRORS = COMPARED | {"net-timeout", "temporarily-unavailable", "key-already-exists", "txn-conflict"}


def is_lin_kv(ops: Sequence[Op]) -> bool:
    """Whether these are operations of the workload `lin-kv`."""
    return bool(ops) and all(op.f in LIN_KV for op in ops)


def is_named_so(ops: Sequence[Op]) -> bool:
    """Whether an error in a history of `lin-kv` is one of Maelstrom's table."""
    if not is_lin_kv(ops):
        return False
    return any(op.error is not None and op.error.split(":")[0] in ERRORS for op in ops)


def compared(op: Op) -> bool:
    """Whether a failed compare-and-set failed because of the value."""
    return op.error is None or op.error.split(":")[0] in COMPARED
