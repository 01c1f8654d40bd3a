"""Locks whose releases name no token: each is of the latest grant of the process that asks."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checking import check
from harness.offline import Asked, judge_file
from harness.verdict import Verdict
from tests import checking_objects as objects
from tests.checking_histories import Made, Shape, history_of, simulate

TTL = {"ttl_s": 2.0}
S = 1_000_000_000


def grant(process: int, at: int, token: int | None, **more: Any) -> Made:
    return Made(at, at + 1, "acquire", process=process, told=token, **more)


def release(process: int, at: int, **more: Any) -> Made:
    return Made(at, at + 1, "release", process=process, **more)


def judged(calls: list[Made], model: str = "lock") -> Verdict:
    return check(history_of(calls), model)


def names(calls: list[Made], model: str = "lock") -> list[str]:
    return [anomaly.name for anomaly in judged(calls, model).anomalies]


def test_a_release_ends_the_hold_of_its_caller() -> None:
    legal = [grant(1, 0, 5), release(1, 2), grant(2, 4, 6), release(2, 6)]
    assert judged(legal).verdict == "pass"
    assert names([*legal[:1], *legal[2:]]) == ["duplicate-grant"]
    assert names([grant(1, 0, 5), release(1, 2), release(1, 4)]) == ["duplicate-effect"]


def test_a_renewal_without_a_token_is_of_its_caller_too() -> None:
    renewed = Made(6, 7, "renew", process=1)
    held = [grant(1, 0, 5), release(1, 2), grant(2, 4, 6)]
    assert names([*held, renewed]) == ["zombie-lease"]


def test_the_sentence_names_the_token_that_was_meant() -> None:
    verdict = judged([grant(1, 0, 5), release(1, 2), release(1, 4)])
    assert "release (token 5)" in verdict.headline


def test_a_grant_without_a_token_is_refused_by_its_line() -> None:
    verdict = judged([grant(1, 0, 5), release(1, 2), grant(2, 4, None)])
    assert verdict.verdict == "unknown"
    assert [u.reason for u in verdict.unknown] == ["malformed"]
    assert "line 5: a grant without a token" in verdict.headline


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_release_of_nobody_knows_what_is_refused_by_its_line(outcome: Any) -> None:
    verdict = judged([grant(1, 0, 5), release(2, 2, type=outcome), grant(3, 4, 6)])
    assert "line 3: a release without a token" in verdict.headline


def test_a_refused_release_of_nothing_says_nothing() -> None:
    refused = release(2, 2, type="fail", error="not-holder")
    assert judged([grant(1, 0, 5), refused, release(1, 4), grant(3, 6, 6)]).verdict == "pass"


def test_the_promise_of_a_lease_needs_no_tokens() -> None:
    def at(s: float, f: str, process: int, **more: Any) -> Made:
        return Made(round(s * S), round(s * S) + S // 10, f, process=process, **more)

    first, second = (at(s, "acquire", n, value=TTL) for s, n in ((0, 1), (1.5, 2)))
    assert names([first, second], "lease-promise") == ["duplicate-grant"]
    assert names([first, at(1, "release", 1), second], "lease-promise") == []
    assert names([first, at(1, "renew", 1), at(2.5, "acquire", 2, value=TTL)], "lease-promise") == [
        "premature-expiry"
    ]
    gone = at(1, "renew", 1, type="fail", error="not-holder")
    assert names([first, gone], "lease-promise") == ["premature-expiry"]


def without_tokens(calls: list[Made]) -> list[Made]:
    """Leave out each token that is the one of the latest grant of its process, by a plain walk."""
    latest: dict[tuple[str, int], int | None] = defaultdict(lambda: None)
    out = []
    for made in sorted(calls, key=lambda made: made.call):
        at = (made.key, made.process)
        if made.f == "acquire" and made.type == "ok":
            latest[at] = made.told
        same = made.token is not None and made.token == latest[at]
        out.append(replace(made, token=None) if same and made.f != "acquire" else made)
    return out


@pytest.mark.parametrize("expires", [False, True])
def test_tokens_may_be_left_out_where_they_are_of_the_latest_grant(expires: bool) -> None:
    model, left_out, verdicts = "lease" if expires else "lock", 0, set()
    for seed in range(300):
        shape = Shape(seed, 9, 3, 0.15, 0.1)
        calls = simulate(shape, (None, 0), objects.lock_act(expires=expires))
        calls.sort(key=lambda made: made.call)
        silent = without_tokens(calls)
        left_out += sum(made.token is None and made.f != "acquire" for made in silent)
        told, untold = judged(calls, model), judged(silent, model)
        assert told == untold, silent
        verdicts.add(told.verdict)
    assert left_out > 300
    assert {"pass", "fail"} <= verdicts


def test_what_a_lock_cannot_judge_is_named_by_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lock.edn"
    path.write_text(
        "; a lock without tokens\n\n"
        "[{:process 1, :type :invoke, :f :acquire}\n\n"
        " {:process 1, :type :ok, :f :acquire}\n"
        " {:process 1, :type :invoke, :f :release}\n"
        " {:process 1, :type :ok, :f :release}]\n"
    )
    verdict = judge_file(path, Asked(model="lock")).verdict
    assert "lock.edn, line 3: a grant without a token" in verdict.headline
    assert judge_file(path, Asked(model="mutex")).verdict.verdict == "pass"
