"""How a worker's operation ended: the rule that decides between `fail` and `info`."""

from harness.protocol import Done
from harness.target import RefusedError, proves_no_effect
from harness.text import plain


class AdapterError(Exception):
    """A target's client broke its contract; the run cannot be judged."""


def completion(op_id: int, target: object, error: BaseException) -> Done:
    """Turn an error into the answer: `fail` only when it proves that nothing happened."""
    text = plain(str(error)) or type(error).__name__
    if isinstance(error, RefusedError):
        return Done(id=op_id, result="fail", error=text)
    rule = proves_no_effect(target, error)
    if rule is not None:
        return Done(id=op_id, result="fail", error=f"no-effect: {rule.name}: {text}")
    return Done(id=op_id, result="info", error=f"{type(error).__name__}: {text}")
