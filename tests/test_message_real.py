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
        workers=2,
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
    lost = lost_acquire(ops, hit["worker"], window)
    assert ops[lost]["type"] == "info", ops[lost]
    held_s = held_for(ops, lost)
    ttl_s = float(ttl[:-1])
    assert held_s is None or ttl_s * 0.8 < held_s < ttl_s + 3, "nobody else got it before the TTL"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def lost_acquire(ops: list[dict[str, Any]], worker: str, window: dict[str, Any]) -> int:
    """Return the index of the answer to the acquire that was under way when it was hit."""
    asked = [
        (i, op)
        for i, op in enumerate(ops)
        if op["worker"] == worker
        and op["f"] == "acquire"
        and op["type"] == "invoke"
        and op["time_ns"] <= window["on_ns"]
    ]
    i, invoke = asked[-1]
    return next(
        j
        for j, op in enumerate(ops[i + 1 :], start=i + 1)
        if op["process"] == invoke["process"] and op["type"] != "invoke" and op["f"] == "acquire"
    )


def held_for(ops: list[dict[str, Any]], lost: int) -> float | None:
    """Return for how long after it was asked for nobody got the lock, in seconds.

    None when the lost reply was itself a refusal.
    """
    before = [op for op in ops[:lost] if op["type"] == "ok" and op["f"] in ("acquire", "release")]
    if before and before[-1]["f"] == "acquire":
        return None
    invoke = max(
        i
        for i in range(lost)
        if ops[i]["type"] == "invoke"
        and ops[i]["f"] == "acquire"
        and ops[i]["process"] == ops[lost]["process"]
    )
    taken = next(op for op in ops[lost:] if op["type"] == "ok" and op["f"] == "acquire")
    return float(taken["time_ns"] - ops[invoke]["time_ns"]) / 1e9
