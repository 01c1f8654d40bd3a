"""Whom a fault may hit is known before anything is started."""

import pytest

from harness.runcheck import Crowd, who_complaint
from tests.support_plugins import Etcd, Lonely


def crowd(nodes: int = 3, workers: int = 3, readers: int = 1) -> Crowd:
    servers = [f"etcd{i + 1}" for i in range(nodes)]
    return Crowd(workers, readers, Etcd(nodes=nodes), servers, ["valkey1"], (*servers, "valkey1"))


@pytest.mark.parametrize(
    "who",
    [
        *(
            "holder",
            "waiter",
            "reader",
            "leader",
            "follower",
            "minority",
            "majority",
            "all",
            "store",
        ),
        *("worker:1", "worker:3", "server:3", "etcd2", "valkey1", "w3", "r1"),
    ],
)
def test_everybody_of_a_usual_run_can_be_hit(who: str) -> None:
    assert who_complaint(who, crowd()) is None


@pytest.mark.parametrize(
    ("who", "there", "words"),
    [
        ("waiter", crowd(workers=1), "workers: 2 or more"),
        ("reader", crowd(readers=0), "readers: 1 or more"),
        ("worker:4", crowd(), "worker:1 to worker:3"),
        ("worker:0", crowd(), "worker:1 to worker:3"),
        ("server:4", crowd(), "server:1 to server:3"),
        ("w4", crowd(), "allowed: holder"),
        ("r2", crowd(), "allowed: holder"),
        ("minority", crowd(nodes=2), "needs 3 servers or more; etcd has 2"),
        ("follower", crowd(nodes=1), "needs 2 servers or more; etcd has 1"),
        ("leadr", crowd(), "did you mean leader?"),
        ("", crowd(), "allowed: holder"),
        ("leader", Crowd(3, 1, Lonely(), [], []), "lonely cannot say which of its servers leads"),
        ("all", Crowd(3, 1, Lonely(), [], []), "needs 1 servers or more; lonely has 0"),
        ("server:1", Crowd(3, 1, Lonely(), [], []), "nothing, because there is no server"),
        ("store", Crowd(3, 1, Lonely(), [], []), "no server process"),
    ],
)
def test_nobody_is_refused_with_the_reason(who: str, there: Crowd, words: str) -> None:
    assert words in str(who_complaint(who, there))


@pytest.mark.parametrize("who", ["server:9", "leader", "valkey7", "w9", "worker:9", "store"])
def test_what_cannot_be_known_is_not_complained_about(who: str) -> None:
    assert who_complaint(who, Crowd(None, None)) is None
