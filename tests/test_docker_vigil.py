"""One at a time removes what is left of a run: whoever comes second waits for the reaper's end."""

import secrets
import threading
import time
from pathlib import Path

from harness.docker.vigil import _address, await_end, heard
from tests.live import until


def test_nobody_is_waited_for_where_no_reaper_lives() -> None:
    began = time.monotonic()
    assert not await_end(secrets.token_hex(4))
    assert time.monotonic() - began < 5


def endpoints(run: str) -> int:
    """How many sockets the name of a run's reaper is bound or connected to."""
    return Path("/proc/net/unix").read_text("ascii", "replace").count(_address(run)[1:])


def test_a_living_reaper_is_waited_for_by_all_who_come() -> None:
    run = secrets.token_hex(4)
    ended = threading.Event()
    found: list[tuple[bool, bool]] = []

    def come() -> None:
        found.append((await_end(run), ended.is_set()))

    with heard(run) as alone, heard(run) as second:
        assert (alone, second) == (True, False)
        threads = [threading.Thread(target=come) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: endpoints(run) >= 4, "all three to wait, with the one who is heard")
        assert found == []
        ended.set()
    for thread in threads:
        thread.join()
    assert found == [(True, True)] * 3
    assert not await_end(run)


def test_one_that_does_not_end_is_waited_for_within_bounds() -> None:
    run = secrets.token_hex(4)
    with heard(run):
        assert await_end(run, 0.1)
