"""What a crash does to real locks and stores: a forgotten fence, a late request, no false alarm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.answer import completion
from harness.evidence import Evidence
from harness.history import History
from harness.op import Op, OpType
from harness.target import RefusedError, Stored
from targets.atlasmart.journal import JOURNAL
from targets.atlasmart.stored import Registers
from targets.atlasmart.wire import Write
from targets.valkey import Valkey
from tests.support_faults import Faulted, faulted
from tests.support_servers import Servers, until
from workloads.fencing import Fencing

MS = 1_000_000


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def crash_between(tmp_path: Path, persist: str) -> Faulted:
    """w1 sleeps past its lease, w2 writes and sleeps too, the store crashes, and w1 wakes up."""
    return faulted(
        tmp_path,
        # Until long after the crash: the store must be up again, on a busy machine too.
        "pause:who=w1,at=before-write,for=6s,count=1",
        "pause:who=w2,at=2.6s,for=5.2s",
        "kill:who=store,at=3s,for=300ms",
        lock="atlasmart",
        store=f"atlasmart[fence=checked,persist={persist}]",
        workers=2,
        ttl="1s",
        time="8500ms",
    )


@pytest.mark.sandbox
def test_a_store_that_forgets_its_fence_obeys_a_stale_owner_after_a_crash(tmp_path: Path) -> None:
    """Case C34.  The store would have refused w1 before the crash, and heard of nobody since."""
    run = crash_between(tmp_path, "value-only")
    assert run.exit_code == 1
    assert "forgotten-fence" in run.names
    (crash,) = run.of("kill")
    found = next(a for a in run.results.verdict.anomalies if a.name == "forgotten-fence")
    wrong = next(call for call in run.calls() if call.index == found.ops[-1])
    assert wrong.worker == "w1"
    assert wrong.call_ns > crash["off_ns"]
    assert wrong.token is not None
    newer = [c for c in run.calls() if c.f == "write" and c.worker == "w2" and c.outcome == "ok"]
    before = [c.token or 0 for c in newer if c.call_ns < crash["requested_ns"]]
    assert max(before) > wrong.token


@pytest.mark.sandbox
def test_a_store_that_keeps_its_fence_refuses_it(tmp_path: Path) -> None:
    run = crash_between(tmp_path, "value-and-fence")
    assert run.exit_code == 0, run.results.verdict
    assert run.results.verdict.stats["stale_refused"] >= 1


@pytest.mark.parametrize(("remembers", "accepted"), [(True, False), (False, True)])
def test_what_the_highest_token_is_after_a_restart(
    tmp_path: Path, remembers: bool, accepted: bool
) -> None:
    path = tmp_path / JOURNAL
    Registers(path, checked=True).handle(Write("k0", "new", 2))
    again = Registers(path, checked=True, remembers=remembers)
    try:
        again.handle(Write("k0", "old", 1))
    except RefusedError:
        assert not accepted
    else:
        assert accepted


@pytest.mark.sandbox
def test_peers_of_a_power_cut_hear_nothing_and_of_a_crash_at_once(tmp_path: Path) -> None:
    run = faulted(
        tmp_path,
        "kill:who=store,at=1s,for=700ms,power=true",
        "kill:who=store,at=3s,for=500ms",
        lock="atlasmart",
        store="atlasmart[fence=checked]",
        ttl="1s",
        time="5s",
        op_timeout="300ms",
    )
    assert not run.names
    assert not run.results.leftover
    power, crash = run.of("kill")
    assert set(errors_of_the_store(run, power)) == {"TimeoutError"}
    assert set(errors_of_the_store(run, crash)) == {"no-effect"}


def errors_of_the_store(run: Faulted, window: dict[str, Any]) -> list[str]:
    """The errors of operations on the store that began and ended while it was dead."""
    ops = run.ops()
    return [
        (ops[call.ret_index].error or "").split(":")[0]
        for call in run.calls()
        if call.f in ("read", "write")
        and call.ret_index is not None
        and call.call_ns > window["on_ns"]
        and ops[call.ret_index].time_ns < window["heal_ns"]
    ]


@pytest.mark.sandbox
@pytest.mark.real
def test_a_leader_that_is_killed_again_and_again_is_no_false_alarm(tmp_path: Path) -> None:
    """Case C67 as far as a lock shows it; the store is killed as well, and keeps its fence."""
    run = faulted(
        tmp_path,
        "kill:who=leader,at=1s,for=500ms,every=1s,count=3",
        "kill:who=store,at=2s,for=200ms",
        lock="etcd[heartbeat_ms=50,election_ms=500]",
        store="valkey[fenced=true]",
        time="11s",
    )
    assert not run.names, run.results.verdict
    assert run.reasons <= {"vacuous"}
    assert not run.results.leftover
    kills = run.of("kill")
    assert len(kills) == 4
    healed_ns = max(window["off_ns"] for window in kills)
    after = [c for c in run.calls() if c.call_ns > healed_ns and c.outcome == "ok"]
    assert {"acquire", "read", "write"} <= {call.f for call in after}


@pytest.mark.real
def test_a_frozen_server_executes_the_request_of_a_client_that_gave_up(tmp_path: Path) -> None:
    """Case C05: the outcome is info, and then nothing is wrong; as a fail it would be."""
    target = Valkey()
    with Servers(target, tmp_path) as servers:
        servers.start()
        lock, store = target.lock(servers.cluster, 0.3), target.store(servers.cluster, 0.3)
        # Both are connected, as a client at work is.
        until(lambda: outcome(target, lambda: lock.acquire("k1", 60.0)) != "info", "the lock")
        until(lambda: outcome(target, lambda: store.write("k0", "w2-0", 1)) == "ok", "the store")
        servers.freeze("valkey1")
        outcomes = [
            outcome(target, lambda: lock.acquire("k0", 60.0)),
            outcome(target, lambda: store.write("k0", "w1-0", 2)),
        ]
        servers.thaw("valkey1")
        late = target.store(servers.cluster, 5.0)
        until(lambda: late.read("k0") == Stored("w1-0", 2), "the write that nobody waits for")
        with pytest.raises(RefusedError, match="held"):
            target.lock(servers.cluster, 5.0).acquire("k0", 60.0)
    assert outcomes == ["info", "info"]
    assert not names(story("info"))
    assert names(story("fail")) == {"aborted-read"}


def outcome(target: Valkey, call: Any) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever it is, the error table judges it
        return completion(0, target, error).result
    return "ok"


def story(end_of_write: OpType) -> Sequence[Op]:
    """The history that the operations above would leave."""

    def op(process: int, kind: OpType, f: str, ms: int, **more: Any) -> Op:
        worker = "r1" if process == 2 else f"w{process + 1}"
        return Op(process=process, type=kind, f=f, key="k0", time_ns=ms * MS, worker=worker, **more)

    ttl = {"ttl_s": 60.0}
    return [
        op(1, "invoke", "acquire", 0, value=ttl),
        op(1, "ok", "acquire", 1, value=ttl, token=1),
        op(1, "invoke", "write", 2, value="w2-0", token=1),
        op(1, "ok", "write", 3, token=1),
        op(1, "invoke", "release", 4, token=1),
        op(1, "ok", "release", 5),
        op(0, "invoke", "acquire", 10, value=ttl),
        op(0, "ok", "acquire", 11, value=ttl, token=2),
        op(0, "invoke", "write", 60, value="w1-0", token=2),
        op(0, end_of_write, "write", 360, error="no-effect: it timed out"),
        op(2, "invoke", "read", 2060),
        op(2, "ok", "read", 2061, value="w1-0", token=2),
    ]


def names(ops: Sequence[Op]) -> set[str]:
    return {anomaly.name for anomaly in Fencing().check(Evidence(History(ops))).anomalies}
