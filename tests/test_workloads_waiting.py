"""Those who queue for a lock: leases that end in the queue, and who is granted the lock then."""

from typing import Any

import pytest

from harness.generator import Invoke, Wait
from harness.op import Op
from harness.spec import RunSpec, TargetSpec
from harness.verdict import Anomaly, Reason
from tests.builders import MS, Mark, Script
from workloads.fencing import Fencing, judge

UNEARNED, DUPLICATE = "unearned-hold", "duplicate-grant"
SPEC = RunSpec(TargetSpec("lock"), TargetSpec("store"), workers=2, readers=1, seed=7, time_s=10.0)


def keep(script: Script, worker: str, at: float, ret: float | None, **rest: Any) -> Mark:
    return script.call(worker, "keep", at, ret, lane="renewal", **rest)


def holder(script: Script, until: float) -> Mark:
    """w1 holds the lock from 10 until it asks to release it."""
    mark = script.acquire("w1", 1, 0, 10)
    for at in range(600, int(until), 600):
        script.renew("w1", 1, at, at + 5)
    script.release("w1", 1, until, until + 5)
    return mark


def dead_waiter(*, released: float = 9000, asked: float = 100, refused: float = 5000) -> Script:
    """w2 queues, sleeps past its lease, is told so, and is granted the lock at 9010; then w3."""
    script = Script()
    holder(script, released)
    script.acquire("w2", 2, asked, 9010)
    keep(script, "w2", 700, 705)
    keep(script, "w2", refused - 10, refused, fail="not-holder: the lease has ended")
    script.acquire("w3", 3, 200, 9012)
    for at in range(800, 9000, 600):
        keep(script, "w3", at, at + 5)
    script.acquire("w2", 4, 9100, None)  # w2 turned away from it
    return script


def found(script: Script, name: str) -> list[Anomaly]:
    return [a for a in judge(script.evidence()).anomalies if a.name == name]


def test_a_grant_to_a_lease_that_ended_in_the_queue_is_unearned() -> None:
    script = dead_waiter()
    (unearned,) = found(script, UNEARNED)
    assert "the service had said at 5.000 s that its lease had ended" in unearned.sentence
    assert "w1 certainly held k0 all that time" in unearned.sentence
    ops = script.evidence().history.ops
    assert [ops[i].f for i in unearned.ops] == ["acquire", "keep", "acquire"]
    assert unearned.size_s == pytest.approx(4.01)
    (duplicate,) = found(script, DUPLICATE)
    assert "w2 and w3 both held k0 for 88 ms" in duplicate.sentence


@pytest.mark.parametrize(
    "changed",
    [
        {"released": 4999},  # it may have been granted before its lease ended
        {"asked": 5},  # nobody is known to have held it when w2 asked
    ],
)
def test_nothing_is_said_where_a_moment_is_left_for_the_grant(changed: dict[str, float]) -> None:
    script = dead_waiter(**changed)
    assert found(script, UNEARNED) == []
    assert found(script, DUPLICATE) == []


def test_a_refusal_that_came_after_the_answer_is_no_witness() -> None:
    script = Script()
    holder(script, 900)
    script.acquire("w2", 2, 100, 910)
    keep(script, "w2", 700, 920, fail="not-holder: the lease has ended")
    assert found(script, UNEARNED) == []


def test_an_unknown_end_of_a_renewal_in_the_queue_is_no_witness() -> None:
    script = Script()
    holder(script, 9000)
    script.acquire("w2", 2, 100, 9010)
    keep(script, "w2", 4000, 5000, info=True)
    assert found(script, UNEARNED) == []


def test_the_place_of_a_waiter_is_kept_alive_by_what_it_renewed_in_the_queue() -> None:
    def script(third: float) -> Script:
        made = Script()
        holder(made, 3000)
        made.acquire("w2", 2, 100, 3010)
        for at in (700, 1300, 1900, 2500):
            keep(made, "w2", at, at + 5)
        made.acquire("w3", 3, 200, third)
        keep(made, "w3", 3900, 3905)
        return made

    (duplicate,) = found(script(4499), DUPLICATE)  # the last renewal of 2500 lasts until 4500
    assert "w2 held it until 4.500 s at the earliest" in duplicate.sentence
    assert found(script(4501), DUPLICATE) == []


def waiters_only(*, dead: bool, refused: bool) -> Script:
    script = Script()
    holder(script, 9000)
    more: dict[str, Any] = {"fail": "not-holder: session is expired"} if refused else {}
    script.acquire("w2", 2, 100, 9010, **more)
    if dead:
        keep(script, "w2", 4990, 5000, fail="not-holder: the lease has ended")
    else:
        keep(script, "w2", 8000, 8005)
    script.write("w1", "w1-0", 1, 50, 60)
    script.read("w1", 70, 75, "w1-0", 1)
    script.write("w1", "w1-1", 1, 4000, 4010)
    script.acquire("w3", 3, 4000, 4010, key="k1")
    script.read("r1", 4000, 4005, "w1-0", 1)
    script.read("r1", 9900, 9905, "w1-1", 1)
    script.paused("w2", 200, 4900, at="queued")
    script.windows[:] = [
        type(window)(
            **{f: getattr(window, f) for f in window.__struct_fields__} | {"who": "waiter"}
        )
        for window in script.windows
    ]
    return script


def test_a_run_that_hits_only_waiters_is_judged_by_what_happened_in_the_queue() -> None:
    verdict = judge(waiters_only(dead=True, refused=True).evidence(final=9800, end=9990))
    assert verdict.verdict == "pass", (verdict.headline, verdict.anomalies)
    assert "1 lease ended in the queue for the lock" in verdict.headline
    assert (verdict.stats["lost_places"], verdict.stats["lost_places_refused"]) == (1, 1)
    verdict = judge(waiters_only(dead=True, refused=False).evidence(final=9800, end=9990))
    assert verdict.verdict == "fail"
    verdict = judge(waiters_only(dead=False, refused=False).evidence(final=9800, end=9990))
    assert [reason.reason for reason in verdict.unknown] == [Reason.VACUOUS]
    assert "no worker was answered whose lease had ended in the queue" in verdict.unknown[0].text


def test_a_contender_that_queues_never_waits_longer_than_the_run() -> None:
    generator = Fencing(wait="8s").generators(SPEC)[0]
    step, generator = generator.step(None, 500 * MS)
    assert step == Invoke("acquire", "k0", {"ttl_s": 2.0, "wait_s": 8.0})
    refused = Op(process=0, type="fail", f="acquire", key="k0", time_ns=0, error="not-holder")
    step, generator = generator.step(refused, 6400 * MS)
    assert isinstance(step, Wait)
    step, generator = generator.step(None, 6500 * MS)
    assert isinstance(step, Invoke)
    assert step.value == {"ttl_s": 2.0, "wait_s": 4.0}  # the run began at 500 ms and lasts 10 s
    step, _ = Fencing().generators(SPEC)[0].step(None, 0)
    assert step == Invoke("acquire", "k0", {"ttl_s": 2.0})


def test_queueing_wants_a_lock_for_which_one_can_queue() -> None:
    from targets.etcd import Etcd

    for lock, fits in (("txn", False), ("service", True), ("mutex", True)):
        target = Etcd(lock=lock)
        complaint = Fencing(wait="1s").unsuitable(target, target)
        assert (complaint is None) is fits
        assert Fencing().unsuitable(target, target) is None
