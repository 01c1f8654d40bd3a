"""`forged-token`: an operation was accepted with a token that its caller was never granted.

An acquire of the caller whose outcome nobody knows may have brought the token, so then nothing is
said.  A renewal or release by a worker that was never granted anything counts too, where locks
have no tokens.
"""

from math import inf

from harness.history import Call
from harness.verdict import Anomaly
from workloads._grants import Grant
from workloads._result import Result, found
from workloads._trace import Trace
from workloads._words import done_ns, instant

NAME = "forged-token"
_USES = ("write", "renew", "release")


def forged_tokens(trace: Trace) -> Result:
    """Return the property; every accepted write, renewal and release is a case."""
    if not trace.grants and not trace.of("acquire"):
        return found(NAME, 0, ())  # a register without a lock: nobody is ever granted anything
    used = sorted(
        (call for f in _USES for call in trace.of(f) if call.outcome == "ok"),
        key=lambda call: call.index,
    )
    in_doubt: dict[str, int] = {}  # from when on a worker may have a grant that nobody knows of
    granted: dict[tuple[str, int | None], int] = {}  # from when on it was granted something
    owner: dict[int | None, Grant] = {}
    for call in trace.of("acquire"):
        if call.outcome in ("info", "open"):
            in_doubt.setdefault(call.worker, call.index)
    for grant in trace.grants:
        token = grant.token if trace.tokens else None
        owner.setdefault(token, grant)
        for key in ((grant.worker, token), (grant.worker, None)):
            granted[key] = min(granted.get(key, grant.acquire.index), grant.acquire.index)
    anomalies = []
    for call in used:
        token = call.token if trace.tokens else None
        since = granted.get((call.worker, token), inf)
        if min(since, in_doubt.get(call.worker, inf)) > call.index:
            anomalies.append(_anomaly(trace, call, owner.get(token)))
    return found(NAME, len(used), anomalies)


def _anomaly(trace: Trace, call: Call, owner: Grant | None) -> Anomaly:
    if not trace.tokens or (owner is not None and owner.acquire.index > call.index):
        owner = None
    what = f"with token {call.token}" if trace.tokens else "without any grant"
    whose = "which nobody was granted" if owner is None else f"which was granted to {owner.worker}"
    if not trace.tokens:
        whose = "which it never had"
    acquired = () if owner is None else (owner.acquire.index,)
    return Anomaly(
        name=NAME,
        sentence=(
            f"{call.worker}'s {call.f} on {trace.key} was accepted at {instant(done_ns(call))}"
            f" {what}, {whose}."
        ),
        ops=(*acquired, call.index),
        time_ns=done_ns(call),
        key=trace.key,
        details={
            "used": call.index,
            "worker": call.worker,
            "owner": None if owner is None else owner.worker,
        },
    )
