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


def is_lin_kv(ops: Sequence[Op]) -> bool:
    """Whether these are operations of the workload `lin-kv`."""
    return bool(ops) and all(op.f in LIN_KV for op in ops)


def compared(op: Op) -> bool:
    """Whether a failed compare-and-set failed because of the value."""
    return op.error is None or op.error.split(":")[0] in COMPARED
