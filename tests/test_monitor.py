"""The live monitors: they see what the order proves and nothing else, and can end a run early."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.api import execute
from harness.cli import main
from harness.monitor import Monitor, Sighting
from harness.op import Op
from harness.runfile import from_values, read, to_yaml
from tests.simulation import simulate
from workloads.fencing import judge

LANES = {"w1": 0, "w2": 1, "w3": 2}
LIVE = {
    "lock": "atlasmart",
    "store": "atlasmart[fence=none]",
    "faults": ["pause"],
    "ttl": "1s",
    "time": "30s",
    "seed": 3,
}


def op(worker: str, kind: Any, f: str, at_ms: float, token: int | None = None, **rest: Any) -> Op:
    return Op(
        process=LANES[worker],
        worker=worker,
        type=kind,
        f=f,
        key="k0",
        token=token,
        time_ns=round(at_ms * 1e6),
        **rest,
    )


def watch(ops: Iterable[Op]) -> list[Sighting]:
    monitor = Monitor()
    seen = [monitor.step(op, i) for i, op in enumerate(ops)]
    return [sighting for sighting in seen if sighting is not None]


def grant(worker: str, at_ms: float, token: int | None, took_ms: float = 1) -> list[Op]:
    ttl = {"ttl_s": 1.0}
    return [
        op(worker, "invoke", "acquire", at_ms, value=ttl),
        op(worker, "ok", "acquire", at_ms + took_ms, token, value=ttl),
    ]


def written(worker: str, at_ms: float, token: int | None, over: Any = None) -> list[Op]:
    return [
        op(worker, "invoke", "write", at_ms, token, value=f"{worker}-{at_ms}"),
        op(worker, "ok", "write", at_ms + 1, value=over),
    ]


def names(ops: Iterable[Op]) -> list[str]:
    return [sighting.name for sighting in watch(ops)]


def test_a_write_with_a_lower_token_after_a_higher_one() -> None:
    ops = [*written("w2", 0, 2), *written("w1", 5, 1)]
    (sighting,) = watch(ops)
    assert (sighting.name, sighting.op, sighting.time_ns) == ("stale-owner-write", 3, 6_000_000)
    assert "w1" in sighting.sentence


def test_a_token_that_was_shown_counts_like_one_that_was_accepted() -> None:
    shown = [op("w3", "invoke", "read", 0), op("w3", "ok", "read", 1, 2, value="x")]
    assert names([*shown, *written("w1", 5, 1)]) == ["stale-owner-write"]


def test_what_the_resource_says_that_it_overwrote_is_proof_at_once() -> None:
    first, second = written("w1", 5, 1, {"over": {"value": "x", "token": 2}})
    assert names([first, second]) == ["stale-owner-write"]


def test_writes_at_the_same_time_prove_nothing() -> None:
    (a, a_ok), (b, b_ok) = written("w1", 0, 1), written("w2", 0.5, 2)
    assert not watch([a, b, b_ok, a_ok])
    assert not watch([*written("w2", 0, 2), *written("w2", 5, 2), *written("w1", 9, None)])


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_a_write_that_was_refused_or_is_unknown_is_no_finding(kind: Any) -> None:
    refused = [written("w1", 5, 1)[0], op("w1", kind, "write", 6, error="fenced")]
    assert not watch([*written("w2", 0, 2), *refused])


def test_tokens_of_grants_grow() -> None:
    assert not watch([*grant("w1", 0, 1), *grant("w2", 2000, 2), *grant("w1", 4000, 3)])
    assert names([*grant("w1", 0, 2), *grant("w2", 2000, 1)]) == ["fence-regression"]
    assert names([*grant("w1", 0, 2), *grant("w2", 2000, 2)]) == ["fence-collision"]
    assert not watch([*grant("w1", 0, 2), *grant("w1", 10, 2)]), "granted again what it holds"
    (a, a_ok), (b, b_ok) = grant("w1", 0, 2), grant("w2", 0.5, 1, took_ms=3000)
    assert not watch([a, b, a_ok, b_ok]), "asked for before the higher one was granted"


def test_leases_that_certainly_overlap() -> None:
    assert names([*grant("w1", 0, None), *grant("w2", 500, None)]) == ["duplicate-grant"]
    assert not watch([*grant("w1", 0, None), *grant("w2", 999, None)])
    slow = grant("w2", 100, None, took_ms=1000)
    assert not watch([*grant("w1", 90, None, took_ms=1005), *slow]), "over before it was known"


def test_a_renewal_prolongs_and_a_release_ends_the_lease() -> None:
    renewal = [op("w1", "invoke", "renew", 500), op("w1", "ok", "renew", 501)]
    late = grant("w2", 1200, None)
    assert names([*grant("w1", 0, None), *renewal, *late]) == ["duplicate-grant"]
    assert not watch([*grant("w1", 0, None), *late])
    lost = [renewal[0], op("w1", "fail", "renew", 501, error="not-holder")]
    early = grant("w2", 600, None)
    assert not watch([*grant("w1", 0, None), *lost, *early])
    assert not watch([*grant("w1", 0, None), op("w1", "invoke", "release", 500), *early])


def test_the_lease_of_a_worker_that_is_gone_may_be_freed() -> None:
    monitor = Monitor()
    ops = [*grant("w1", 0, None), *grant("w2", 100, None)]
    for i, one in enumerate(ops):
        if i == 2:
            monitor.gone("w1")
        assert monitor.step(one, i) is None


@pytest.mark.parametrize("block", range(3))
def test_they_see_nothing_where_the_checkers_find_nothing(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        evidence = simulate(seed, trouble=(0.0, 0.02, 0.1)[seed % 3], keys=2, time_s=12.0)
        seen = {sighting.name for sighting in watch(evidence.history.ops)}
        assert seen <= {anomaly.name for anomaly in judge(evidence).anomalies}, seed


def test_they_see_most_stale_writes_of_an_unfenced_resource() -> None:
    stale = seen = 0
    for seed in range(30):
        evidence = simulate(seed, fence="none", trouble=0.1, keys=1, time_s=12.0)
        found = {anomaly.name for anomaly in judge(evidence).anomalies}
        mine = {sighting.name for sighting in watch(evidence.history.ops)}
        assert mine <= found, seed
        stale += "stale-owner-write" in found
        seen += "stale-owner-write" in mine
    assert stale >= 5
    assert seen > stale / 2


def test_the_flag_is_a_key_of_the_run_file() -> None:
    spec = from_values({"lock": "atlasmart", "store": "atlasmart", "stop_on_failure": True})
    assert spec.stop_on_failure
    assert read(to_yaml(spec)) == spec
    assert "stop_on_failure" not in to_yaml(read("{lock: atlasmart, store: atlasmart}"))


@pytest.mark.sandbox
def test_a_run_of_30_s_ends_at_the_first_finding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = from_values({**LIVE, "stop_on_failure": True})
    result = execute(spec, tmp_path / "runs")
    assert result.results is not None, result.error
    assert result.exit_code == 1
    assert "stale-owner-write" in {finding.name for finding in result.findings}
    assert result.results.duration_s < 25
    assert not result.results.interrupted
    progress = capfd.readouterr().err
    assert "the main phase ends here" in progress
    assert "--stop-on-failure" in result.results.command
    assert main(["check", str(result.folder), "--model", "fenced"]) == 1
