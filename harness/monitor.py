"""What can be seen to be wrong while a run goes on, for a few dictionary look-ups an op.

The monitors know the order in which events were recorded and nothing else, and say only what that
order proves: an accepted write with a lower token than one that the resource had accepted or shown
before the write was asked for; a grant whose token is not above one that was granted before it was
asked for; a grant while another worker's lease certainly ran.  What they miss the checkers find;
the verdict is the checkers' alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.op import Op, Process
from harness.units import show_ns


@dataclass(frozen=True, slots=True)
class Sighting:
    """Something that is wrong: its name in the catalogue, a sentence, and the op that shows it."""

    name: str
    sentence: str
    op: int
    time_ns: int


@dataclass(slots=True)
class _Hold:
    """A lease that certainly runs until `until_ns`."""

    token: int | None
    ttl_ns: int
    until_ns: int


@dataclass(slots=True)
class Monitor:
    """The state of all monitors; fed with each op as it is recorded."""

    _asked: dict[Process, tuple[Op, int | None]] = field(default_factory=dict)
    _accepted: dict[str | None, int] = field(default_factory=dict)
    _granted: dict[str | None, tuple[int, str | None]] = field(default_factory=dict)
    _holds: dict[str | None, dict[str | None, _Hold]] = field(default_factory=dict)

    def step(self, op: Op, index: int) -> Sighting | None:
        """Take the next op of the history; return what it shows to be wrong."""
        if op.type == "invoke":
            self._invoked(op)
            return None
        invoked = self._asked.pop(op.process, None)
        if invoked is None:
            return None
        asked, before = invoked
        if op.type != "ok":
            if op.f == "renew":
                self._drop(op)
            return None
        wrong = None
        match op.f:
            case "acquire":
                wrong = self._acquired(asked, op, before)
            case "renew":
                self._renewed(asked, op)
            case "write":
                wrong = self._wrote(asked, op, before)
            case "read":
                self._saw(op.key, op.token)
        if wrong is None:
            return None
        return Sighting(wrong[0], wrong[1], index, op.time_ns)

    def gone(self, worker: str) -> None:
        """A worker ends: a service may free the lock of a session that died."""
        for holds in self._holds.values():
            holds.pop(worker, None)

    def _invoked(self, op: Op) -> None:
        before = None
        if op.f == "write":
            before = self._accepted.get(op.key)
        elif op.f == "acquire":
            granted = self._granted.get(op.key)
            before = None if granted is None else granted[0]
        if op.f in ("acquire", "release"):
            self._drop(op)
        self._asked[op.process] = (op, before)

    def _drop(self, op: Op) -> None:
        self._holds.get(op.key, {}).pop(op.worker, None)

    def _saw(self, key: str | None, token: int | None) -> None:
        if token is not None and token > self._accepted.get(key, token - 1):
            self._accepted[key] = token

    def _wrote(self, asked: Op, op: Op, before: int | None) -> tuple[str, str] | None:
        token = asked.token
        if token is None:
            return None
        higher = before if before is not None and before > token else _overwritten(op, token)
        self._saw(op.key, token)
        if higher is None:
            return None
        return "stale-owner-write", (
            f"{op.worker} wrote {op.key} with token {token} at {show_ns(op.time_ns)},"
            f" after token {higher}"
        )

    def _acquired(self, asked: Op, op: Op, before: int | None) -> tuple[str, str] | None:
        wrong = self._token_granted(op, before)
        ttl_ns = _ttl_ns(op.value) or _ttl_ns(asked.value)
        if ttl_ns is None:
            return wrong
        holds = self._holds.setdefault(op.key, {})
        mine = _Hold(op.token, ttl_ns, asked.time_ns + ttl_ns)
        for worker, hold in holds.items():
            if min(hold.until_ns, mine.until_ns) > op.time_ns and worker != op.worker:
                text = f"{op.worker} was granted {op.key} at {show_ns(op.time_ns)} while {worker}"
                both = f"{text} held it until {show_ns(hold.until_ns)}"
                wrong = wrong or ("duplicate-grant", both)
        holds[op.worker] = mine
        return wrong

    def _token_granted(self, op: Op, before: int | None) -> tuple[str, str] | None:
        token = op.token
        if token is None:
            return None
        highest, owner = self._granted.get(op.key, (token - 1, None))
        if token > highest:
            self._granted[op.key] = (token, op.worker)
        if before is not None and token < before:
            return "fence-regression", (
                f"{op.worker} was granted {op.key} with token {token} after token {before}"
            )
        if token == highest and owner != op.worker:
            return "fence-collision", f"{owner} and {op.worker} hold {op.key} with token {token}"
        return None

    def _renewed(self, asked: Op, op: Op) -> None:
        hold = self._holds.get(op.key, {}).get(op.worker)
        if hold is not None and hold.token == asked.token:
            hold.until_ns = max(hold.until_ns, asked.time_ns + hold.ttl_ns)


def _ttl_ns(value: Any) -> int | None:
    """Return the lease that an acquire asked for or was given."""
    ttl_s = value.get("ttl_s") if isinstance(value, Mapping) else None
    return round(ttl_s * 1e9) if isinstance(ttl_s, int | float) else None


def _overwritten(op: Op, token: int) -> int | None:
    """Return the higher token that a write overwrote, as the resource itself says."""
    over = op.value.get("over") if isinstance(op.value, Mapping) else None
    told = over.get("token") if isinstance(over, Mapping) else None
    return told if isinstance(told, int) and told > token else None
