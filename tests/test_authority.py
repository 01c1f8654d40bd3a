"""The adversary: which tokens it uses, what fences do with them, and what is said of it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness import adversary
from harness.api import RunResult, execute
from harness.cast import Cast
from harness.generator import Invoke
from harness.op import Op
from harness.runfile import read
from harness.site import Site, Tokens
from harness.window import Proof
from nemesis.authority import JUMP, Authority, Kind, candidates
from targets.atlasmart import Atlasmart
from targets.etcd import Etcd
from targets.valkey import Valkey

# ---------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("kind", "written", "numbers"),
    [
        ("old", True, [3, 5]),  # below 6, with which a write was acknowledged
        ("old", False, [3, 5, 6]),  # below 8, the newest grant
        ("guessed", True, [2, 4]),
        ("guessed", False, [2, 4, 7]),
        ("foreign", True, [8]),
        ("forged", False, [8 + JUMP]),
    ],
)
def test_each_kind_takes_its_own_numbers(kind: Kind, written: bool, numbers: list[int]) -> None:
    assert list(candidates(kind, Tokens((3, 5, 8, 6), 6), written=written)) == numbers


@pytest.mark.parametrize("kind", ["old", "guessed"])
def test_before_a_write_was_accepted_no_fence_can_know_better(kind: Kind) -> None:
    assert candidates(kind, Tokens((3, 5), None), written=True) == []


def test_a_counter_from_one_on_leaves_only_zero_to_be_guessed() -> None:
    assert candidates("guessed", Tokens((1, 2, 3), 3), written=True) == [0]
    assert candidates("guessed", Tokens((0, 1), 1), written=True) == []
    assert candidates("old", Tokens((1,), 1), written=True) == []


# --------------------------------------------------------------------------- options


def test_kinds_are_written_with_a_plus() -> None:
    assert Authority().options.what == ("guessed", "old")
    assert Authority(what="foreign").options.what == ("foreign",)
    for wrong in ("olds", "old,guessed", "old+", ""):
        with pytest.raises(ValidationError, match="or several, like guessed"):
            Authority(what=wrong)


def cast(target: Any) -> Cast:
    return Cast(lock=target, store=Valkey(), lock_servers=["s1"], store_servers=[], workers=["w1"])


@pytest.mark.parametrize(
    ("f", "target", "why"),
    [
        ("write", Valkey(), None),
        ("release", Atlasmart(), None),
        ("renew", Atlasmart(), None),
        ("release", Etcd(), None),
        ("renew", Etcd(), "found renew, but a grant of etcd is more than a key and a token"),
        (
            "release",
            Valkey(),
            "found release, but a grant of valkey is more than a key and a token",
        ),
    ],
)
def test_a_grant_is_made_up_only_where_it_is_key_and_token(
    f: str, target: Any, why: str | None
) -> None:
    said = Authority(f=f).impossible(cast(target))
    assert said is None if why is None else said is not None and why in said.text


def test_without_an_adversary_it_cannot_work() -> None:
    assert Authority().available(Site({})) is not None
    assert Authority().available(Site({}, adversary=adversary.ExtraWorker(2.0))) is None
    assert adversary.wanted([object()]) == []
    assert adversary.wanted([object(), Authority()]) == ["a1"]


class Deaf:
    """A controller whose adversary is gone; w1 was granted 3 and wrote with it, then w2 got 4."""

    def __init__(self, worker: adversary.ExtraWorker) -> None:
        self.when_done: Callable[[Op, Op], None] = lambda _asked, _done: None
        worker.join(self)  # type: ignore[arg-type] # a controller as far as it is needed
        for name, f, token in (("w1", "acquire", 3), ("w1", "write", 3), ("w2", "acquire", 4)):
            used = token if f == "write" else None
            got = token if f == "acquire" else None
            asked = Op(process=0, type="invoke", f=f, key="k0", token=used, time_ns=0, worker=name)
            done = Op(process=0, type="ok", f=f, key="k0", token=got, time_ns=0, worker=name)
            self.when_done(asked, done)

    def perform(self, name: str, step: Invoke) -> None:
        assert name == "a1"


def test_what_an_adversary_did_that_is_gone_is_not_known() -> None:
    worker = adversary.ExtraWorker(2.0)
    Deaf(worker)
    assert worker.tokens() == {"k0": Tokens((3, 4), 3)}
    fault, place = Authority(what="old+foreign"), Site({}, adversary=worker)

    async def attack() -> Proof:
        await fault.start(place, [])
        return await fault.in_force(place, [])

    proof = asyncio.run(attack())
    assert proof.holds is None
    assert [one["kind"] for one in proof.facts["tried"]] == ["foreign"]
    assert "foreign token 4 of k0: unknown (the adversary is still busy, or gone)" in proof.text
    assert "no old token to be had yet" in proof.text  # 3 itself was the highest accepted


# ------------------------------------------------------------------------------ runs


def run(tmp_path: Path, fence: str, *faults: str) -> tuple[RunResult, list[dict[str, Any]]]:
    """Run with the faults; return the result and everything that was tried."""
    text = (
        f"lock: atlasmart\nstore: atlasmart[fence={fence}]\n"
        "ttl: 3s\ntime: 3s\nop_timeout: 2s\nseed: 3\n"
        "workload: {name: fencing, options: {rounds: 2..4}}\nfaults:\n"
        + "".join(f"  - {fault}\n" for fault in faults)
    )
    result = execute(read(text), tmp_path / "runs", quiet=True)
    assert result.folder is not None, result.error
    lines = (result.folder / "faults.jsonl").read_text().splitlines()
    windows = [json.loads(line) for line in lines]
    return result, [one for w in windows for one in w["on"]["facts"]["tried"]]


@pytest.mark.sandbox
def test_a_fence_refuses_old_and_guessed_tokens_and_that_is_a_pass(tmp_path: Path) -> None:
    often = "at=1s,for=100ms,every=200ms"
    result, tried = run(tmp_path, "checked", f"authority:{often}", f"authority:f=release,{often}")
    assert result.verdict == "pass", result.results and result.results.verdict.unknown
    assert result.results is not None
    stats = result.results.verdict.stats
    assert stats["forged_refused"] == stats["forged_attempts"] == len(tried) >= 8
    assert "never granted to its user were refused" in result.results.verdict.headline
    assert {one["kind"] for one in tried} == {"old", "guessed"}
    assert {one["seen"] for one in tried} == {False, None}
    assert {one["outcome"] for one in tried} == {"fail"}
    history = (result.folder / "history.jsonl").read_text().splitlines()  # type: ignore[operator]
    ops = [json.loads(history[one["op"]]) for one in tried]
    assert {op["worker"] for op in ops} == {"a1"}
    assert {op["f"] for op in ops} == {"write", "release"}


@pytest.mark.sandbox
def test_a_store_without_a_fence_accepts_them_while_the_holder_thinks(tmp_path: Path) -> None:
    result, tried = run(
        tmp_path, "none", "authority:what=old,at=before-write,after=1s,for=50ms,every=50ms"
    )
    assert result.verdict == "fail"
    names = {anomaly.name for anomaly in result.findings}
    assert (
        {"forged-token", "stale-owner-write"}
        <= names
        <= {*("forged-token", "stale-owner-write", "lost-update")}
    )
    assert any(one["outcome"] == "ok" and one["seen"] for one in tried)
    assert all(a.details["worker"] == "a1" for a in result.findings)


@pytest.mark.sandbox
def test_who_holds_somebody_elses_token_can_give_back_the_lock(tmp_path: Path) -> None:
    """C49: the lock does not know to whom it gave the token."""
    fault = "authority:what=foreign,f=release,at=1s,for=100ms,every=300ms"
    result, _ = run(tmp_path, "checked", fault)
    assert result.verdict == "fail"
    names = {anomaly.name for anomaly in result.findings}
    assert "forged-token" in names
    assert names <= {"forged-token", "duplicate-grant"}
