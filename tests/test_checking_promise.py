"""The promise of a lease, and a model of one's own for the search."""

from typing import Any

from harness.checking import Model, check, check_columns
from harness.checking.columns import from_history
from harness.checking.model import IMPOSSIBLE, Request, SearchModel
from tests.checking_histories import Made, history_of

S = 1_000_000_000
TTL = {"ttl_s": 2.0}


def acquire(at: float, token: int) -> Made:
    call = round(at * S)
    return Made(call, call + S // 10, "acquire", value=TTL, told=token)


def use(f: str, at: float, token: int, error: str | None = None) -> Made:
    call = round(at * S)
    made = Made(call, call + S // 10, f, token=token, error=error)
    if error:
        made.type = "fail"
    return made


def names(*calls: Made) -> list[str]:
    return [a.name for a in check(history_of(list(calls)), "lease-promise").anomalies]


def test_a_second_grant_within_the_first_lease() -> None:
    assert names(acquire(0, 1), acquire(1.8, 2)) == ["duplicate-grant"]
    assert names(acquire(0, 1), acquire(1.9, 2)) == []  # it ended as the second was answered
    assert names(acquire(0, 1), use("release", 1.0, 1), acquire(1.2, 2)) == []


def test_a_release_without_a_token_is_of_whatever_its_caller_holds() -> None:
    release = Made(S, S + S // 10, "release")
    assert names(acquire(0, 1), release, acquire(1.2, 2)) == []


def test_an_acknowledged_renewal_extends_the_lease() -> None:
    renewed = (acquire(0, 1), use("renew", 1.5, 1))
    assert names(*renewed, acquire(2.5, 2)) == ["premature-expiry"]
    assert names(*renewed, acquire(3.5, 2)) == []
    assert names(*renewed, use("renew", 3.0, 1, "not-holder")) == ["premature-expiry"]
    assert names(*renewed, use("renew", 3.5, 1, "not-holder")) == []


def test_a_renewal_after_the_end_promises_nothing_more() -> None:
    assert names(acquire(0, 1), use("renew", 2.5, 1), acquire(3.0, 2)) == []


class Counter(SearchModel):
    """A counter: `add` a number, `read` the sum."""

    functions = ("add", "read")

    def start(self, initial: Any) -> int:
        return initial or 0

    def kind(self, request: Request) -> tuple[str, Any] | None:
        if request.f == "read":
            return ("read", request.result) if request.outcome == "ok" else None
        return ("add", request.value) if request.outcome != "fail" else None

    def passive(self, kind: Any) -> bool:
        return bool(kind[0] == "read")

    def step(self, state: Any, kind: Any) -> Any:
        f, number = kind
        if f == "add":
            return state + number
        return state if state == number else IMPOSSIBLE


def test_a_model_of_ones_own() -> None:
    counter = Model("A counter.", Counter.functions, lambda _options: Counter())
    calls = [
        Made(0, 1, "add", value=2),
        Made(2, 0, "add", value=5, type="info"),
        Made(3, 4, "read", result=7),
    ]
    assert check_columns(from_history(history_of(calls)), counter).verdict == "pass"
    calls.append(Made(5, 6, "read", result=2))
    verdict = check_columns(from_history(history_of(calls)), counter)
    assert verdict.verdict == "fail"
    assert verdict.anomalies[0].ops[-1] == 5
