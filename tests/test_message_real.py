"""A lost reply, for real: the lock was taken, the answer was lost (case C03)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support_faults import lived

pytestmark = [pytest.mark.sandbox, pytest.mark.real]

# The script that takes the lock in Valkey says NX; the transaction that does it in etcd names the
# lock's key three times.
CASES = [
    pytest.param("valkey", "1s", "4s", "2500ms", "NX.*PX", id="valkey"),
    pytest.param("etcd[nodes=1]", "2s", "6s", "4s", "lock/k0.*lock/k0.*lock/k0", id="etcd"),
]


@pytest.mark.parametrize(("lock", "ttl", "time", "length", "match"), CASES)
def test_an_acquire_whose_reply_is_lost_is_unknown_and_never_a_refusal(
    tmp_path: Path,
    lock: str,
    ttl: str,
    time: str,
    length: str,
    match: str,
) -> None:
    run = lived(
        tmp_path,
        f'message:who=all,at=500ms,for={length},match="{match}"',
        lock=lock,
        store="atlasmart",
        workload="fencing[rounds=2]",
        workers=1,  # so that it is no refusal which is lost
        readers=0,
        ttl=ttl,
        time=time,
        op_timeout="300ms",
        seed=5,
    )
    (window,) = run.windows
    assert window["grade"] == "installed", window
    (hit,) = window["on"]["facts"]["hits"]
    assert hit["delivered"] > 0
    assert hit["answered"] > 0
    assert hit["returned"] == 0
    ops = lines(run.folder / "history.jsonl")
    verdict = run.results.verdict
    assert verdict.verdict in ("pass", "unknown"), verdict.headline
    assert not verdict.anomalies
    lost = lost_acquire(ops, window)
    held_s = held_for(ops, lost)
    ttl_s = float(ttl[:-1])
    assert ttl_s * 0.8 < held_s < ttl_s + 3, "nobody got it before the TTL"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def lost_acquire(ops: list[dict[str, Any]], window: dict[str, Any]) -> int:
    """Return the index of the answer that never came."""
    return next(
        i
        for i, op in enumerate(ops)
        if op["f"] == "acquire" and op["type"] == "info" and op["time_ns"] > window["requested_ns"]
    )


def held_for(ops: list[dict[str, Any]], lost: int) -> float:
    """Return for how long after it was asked for the lock was not given again, in seconds."""
    asked = [op for op in ops[:lost] if op["f"] == "acquire" and op["type"] == "invoke"]
    taken = next(op for op in ops[lost:] if op["type"] == "ok" and op["f"] == "acquire")
    return float(taken["time_ns"] - asked[-1]["time_ns"]) / 1e9
