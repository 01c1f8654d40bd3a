"""The logs of Porcupine's tests: a key-value store as EDN maps, and etcd as lines of Jepsen's log.

A key of the store begins as the empty text, etcd's register as nil.  Porcupine takes a failed
compare-and-set as proof that the value differed; its reads of nil are reads of nothing written.
"""

from collections.abc import Sequence

from harness.op import Op

KV = frozenset({"get", "put", "append"})
KV_INITIAL = ""


def is_kv(ops: Sequence[Op]) -> bool:
    """Whether these are operations of the key-value store."""
    return bool(ops) and all(op.key is not None and op.f in KV for op in ops)
