"""Our reference pair: tokens and fences survive kill -9, and nothing that arrives can break it."""

import contextlib
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.errors import TargetError
from harness.target import Accept, Cluster, Place, RefusedError, Stored, StoreLog, proves_no_effect
from targets.atlasmart import Atlasmart
from targets.atlasmart.client import AtlasmartLock, AtlasmartStore, BadRequestError
from targets.atlasmart.journal import JOURNAL, Journal, JournalError, records
from targets.atlasmart.lockd import Change, Locks
from targets.atlasmart.stored import Registers
from targets.atlasmart.wire import (
    MAX_LINE_BYTES,
    Acquire,
    Check,
    Read,
    Release,
    Renew,
    Write,
    answer,
    serve,
)
from tests.support_servers import Servers, fresh_address, in_time, until


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[Servers]:
    with Servers(Atlasmart(fence="checked"), tmp_path) as servers:
        servers.start()
        yield servers


def lock_of(servers: Servers, timeout_s: float = 5.0) -> Any:
    return closing(AtlasmartLock(servers.cluster["lock1"], timeout_s))


def store_of(servers: Servers, timeout_s: float = 5.0) -> Any:
    return closing(AtlasmartStore(servers.cluster["store1"], timeout_s))


# -- across kill -9


def test_tokens_do_not_go_back_after_a_kill(checked: Servers) -> None:
    with lock_of(checked) as lock:
        for token in (1, 2, 3):
            grant = lock.acquire("k", 30.0)
            assert grant.token == token
            lock.release(grant)
        checked.kill("lock1")
        checked.start("lock1")
        assert lock.acquire("k", 30.0).token == 4


def test_a_held_lock_is_still_held_after_a_kill(checked: Servers) -> None:
    with lock_of(checked) as lock:
        grant = lock.acquire("k", 30.0)
        checked.kill("lock1")
        checked.start("lock1")
        assert lock.check(grant)
        with pytest.raises(RefusedError, match="held"):
            lock.acquire("k", 30.0)
        lock.renew(grant)
        lock.release(grant)


def test_the_fence_stands_after_a_kill(checked: Servers) -> None:
    with store_of(checked) as store:
        store.write("k", "old", 5)
        store.write("k", "new", 7)
        checked.kill("store1")
        checked.start("store1")
        assert store.read("k") == Stored("new", 7)
        with pytest.raises(RefusedError, match="fenced"):
            store.write("k", "stale", 6)
        assert store.write("k", "newer", 7) == Stored("new", 7)


def test_the_store_log_tells_decisions_in_order_also_across_a_kill(checked: Servers) -> None:
    target = checked.target
    assert isinstance(target, StoreLog)
    assert target.store_log(Cluster([Place("store1", "", 0, "store", "/nonexistent")])) == []
    with store_of(checked) as store:
        store.write("k", "a", 5)
        store.write("other", "b", 1)
        with pytest.raises(RefusedError):
            store.write("k", "c", 4)
        checked.kill("store1")
        checked.start("store1")
        with pytest.raises(RefusedError):
            store.write("k", "d", None)
        store.write("k", "e", 6)
    assert target.store_log(checked.cluster) == [
        Accept("k", "a", 5, accepted=True, highest=None),
        Accept("other", "b", 1, accepted=True, highest=None),
        Accept("k", "c", 4, accepted=False, highest=5),
        Accept("k", "d", None, accepted=False, highest=5),
        Accept("k", "e", 6, accepted=True, highest=5),
    ]


def test_an_unfenced_store_records_what_it_let_pass(tmp_path: Path) -> None:
    registers = Registers(tmp_path / JOURNAL, checked=False)
    registers.handle(Write("k", "new", 7))
    registers.handle(Write("k", "stale", 6))
    registers.handle(Write("k", "none", None))
    assert list(records(tmp_path / JOURNAL, Accept)) == [
        Accept("k", "new", 7, accepted=True, highest=None),
        Accept("k", "stale", 6, accepted=True, highest=7),
        Accept("k", "none", None, accepted=True, highest=7),
    ]


def test_every_cut_of_the_store_file_is_a_state_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    registers = Registers(path, checked=True)
    for token in (3, 5, 8):
        registers.handle(Write("k", f"v{token}", token))
    data = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        again = Registers(path, checked=True)
        kept = sum(end <= cut for end in ends)
        if kept == 0:
            assert again.handle(Read("k")) is None
        else:
            highest = (3, 5, 8)[kept - 1]
            assert again.handle(Read("k")) == {"value": f"v{highest}", "token": highest}
            with pytest.raises(RefusedError):
                again.handle(Write("k", "stale", highest - 1))
        again.handle(Write("k", "after", 9))
        last = Registers(path, checked=True)
        assert last.handle(Read("k")) == {"value": "after", "token": 9}
        for registers in (again, last):
            os.close(registers._journal._fd)


def test_a_damaged_file_is_an_error_and_not_an_empty_store(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    Registers(path, checked=True).handle(Write("k", "v", 1))
    for damage in (b"{}\n", b'{"key": "\xff"}\n', b"\0\0\n"):
        path.write_bytes(path.read_bytes() + damage)
        with pytest.raises(TargetError, match="line 2"):
            Registers(path, checked=True)
        path.write_bytes(path.read_bytes()[: -len(damage)])


# -- leases, on a clock of the test


class Clock:
    """Seconds that a test moves."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time of the test."""
        return self.now_s


def test_a_lease_ends_exactly_at_its_ttl_and_renewal_gives_all_of_it_again(tmp_path: Path) -> None:
    clock = Clock()
    locks = Locks(tmp_path / JOURNAL, clock)
    assert locks.handle(Acquire("k", 2.0)) == {"token": 1, "ttl_s": 2.0}
    clock.now_s += 1.5
    locks.handle(Renew("k", 1))
    clock.now_s += 1.999
    assert locks.handle(Check("k", 1)) is True
    with pytest.raises(RefusedError, match="held"):
        locks.handle(Acquire("k", 2.0))
    clock.now_s += 0.001
    assert locks.handle(Check("k", 1)) is False
    for late in (Renew("k", 1), Release("k", 1)):
        with pytest.raises(RefusedError, match="not-holder"):
            locks.handle(late)
    assert locks.handle(Acquire("k", 2.0))["token"] == 2


@pytest.mark.parametrize("token", [None, -1, 0, 2, 10**30])
def test_a_token_that_was_not_granted_opens_nothing(tmp_path: Path, token: int | None) -> None:
    locks = Locks(tmp_path / JOURNAL, Clock())
    locks.handle(Acquire("k", 2.0))
    assert locks.handle(Check("k", token)) is False
    for forged in (Renew("k", token), Release("k", token), Renew("free", token)):
        with pytest.raises(RefusedError, match="not-holder"):
            locks.handle(forged)
    assert locks.handle(Check("k", 1)) is True


def test_a_restart_gives_an_unreleased_lease_its_full_ttl_again(tmp_path: Path) -> None:
    clock = Clock()
    before = Locks(tmp_path / JOURNAL, clock)
    before.handle(Acquire("kept", 2.0))
    before.handle(Acquire("released", 2.0))
    before.handle(Release("released", 1))
    clock.now_s += 1.9
    after = Locks(tmp_path / JOURNAL, clock)
    assert after.handle(Acquire("released", 2.0))["token"] == 2
    clock.now_s += 1.9
    assert after.handle(Check("kept", 1)) is True
    clock.now_s += 0.2
    assert after.handle(Acquire("kept", 2.0))["token"] == 2


def test_a_grant_is_on_disk_before_it_is_answered(tmp_path: Path) -> None:
    locks = Locks(tmp_path / JOURNAL, Clock())
    locks.handle(Acquire("k", 2.0))
    assert list(records(tmp_path / JOURNAL, Change)) == [Change("k", 1, 2.0)]


# -- the wire


class Talk:
    """A raw connection."""

    def __init__(self, place: Place) -> None:
        self.socket = socket.create_connection((place.address, place.port), 5.0)
        self.lines = self.socket.makefile("rb")

    def say(self, data: bytes) -> Any:
        """Send bytes and return the next answer."""
        self.socket.sendall(data)
        return json.loads(self.lines.readline())

    def close(self) -> None:
        """End both directions."""
        self.lines.close()
        self.socket.close()


BAD_LINES = [
    b"",
    b"null",
    b"\xff\xfe",
    b'{"do": "acquire", "key": "\xff", "ttl_s": 1}',
    b"[" * 50_000,
    b'{"do": "explode", "key": "k"}',
    b'{"do": "acquire", "key": "k"}',
    b'{"do": "acquire", "key": 7, "ttl_s": 1}',
    b'{"do": "acquire", "key": "k", "ttl_s": 0}',
    b'{"do": "acquire", "key": "k", "ttl_s": -1}',
    b'{"do": "acquire", "key": "k", "ttl_s": NaN}',
    b'{"do": "acquire", "key": "k", "ttl_s": 1e300}',
    b'{"do": "acquire", "key": "k", "ttl_s": 1, "more": 1}',
    b'{"do": "write", "key": "k", "value": 1, "token": 1}',
]


def test_a_bad_line_is_answered_and_does_nothing(checked: Servers) -> None:
    with closing(Talk(checked.cluster["lock1"])) as talk:
        for line in BAD_LINES:
            assert talk.say(line + b"\n")["kind"] == "bad", line
        good = talk.say(b'{"do": "acquire", "key": "k", "ttl_s": 1}\n')
    assert good == {"kind": "ok", "result": {"token": 1, "ttl_s": 1.0}}


def test_a_line_without_end_is_cut_off_and_others_are_served(checked: Servers) -> None:
    with closing(Talk(checked.cluster["store1"])) as talk, store_of(checked) as store:
        assert talk.say(b"x" * (MAX_LINE_BYTES + 1))["kind"] == "bad"
        assert store.read("k") is None


def test_a_request_cut_in_the_middle_is_no_request(checked: Servers) -> None:
    whole = b'{"do": "write", "key": "k", "value": 12345, "token": 1}'
    with store_of(checked) as store:
        for cut in (len(whole), len(whole) - 1):
            with closing(Talk(checked.cluster["store1"])) as talk:
                talk.socket.sendall(whole[:cut])
                talk.socket.shutdown(socket.SHUT_WR)
                assert talk.lines.readline() == b""
        assert store.read("k") is None


def test_many_clients_get_each_token_once(checked: Servers) -> None:
    tokens: list[int] = []

    def work() -> None:
        with lock_of(checked) as lock:
            done = 0
            while done < 10:
                try:
                    grant = lock.acquire("k", 30.0)
                except RefusedError:
                    continue
                tokens.append(grant.token)
                lock.release(grant)
                done += 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tokens == list(range(1, 51))


def test_a_journal_that_fails_ends_the_server(tmp_path: Path) -> None:
    registers = Registers(tmp_path / JOURNAL, checked=True)
    address, port = fresh_address(), 7202
    _break(registers._journal)

    with ThreadPoolExecutor(1) as threads:
        served = threads.submit(serve, address, port, Read | Write, registers.handle)
        with _connected(address, port) as stream:
            stream.sendall(b'{"do": "write", "key": "k", "value": 1, "token": 1}\n')
            with contextlib.suppress(ConnectionResetError):
                assert stream.recv(1) == b""
        with pytest.raises(JournalError):
            served.result(30)
    with pytest.raises(JournalError):
        registers.handle(Write("k", 2, 1))
    assert registers.handle(Read("k")) is None


def _connected(address: str, port: int) -> socket.socket:
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((address, port), 30)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_full_disk_is_a_journal_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    _break(journal)
    with pytest.raises(JournalError, match=os.strerror(errno.ENOSPC)):
        journal.append({"key": "k"})


def _break(journal: Journal) -> None:
    os.close(journal._fd)
    journal._fd = os.open("/dev/full", os.O_WRONLY)


def test_a_refusal_keeps_its_code_and_its_text(tmp_path: Path) -> None:
    registers = Registers(tmp_path / JOURNAL, checked=True)
    registers.handle(Write("k", 1, 5))
    refused = answer(
        registers.handle, Read | Write, b'{"do":"write","key":"k","value":1,"token":4}'
    )
    assert (refused.kind, refused.text) == (
        "refused",
        "fenced: token 4 against 5, the highest accepted",
    )


# -- errors


def test_a_frozen_server_leaves_the_outcome_unknown_and_no_answer_behind(checked: Servers) -> None:
    with store_of(checked, 0.3) as store, store_of(checked) as witness:
        in_time(lambda: store.write("k", "before", 1))
        checked.freeze("store1")
        with pytest.raises(TimeoutError) as late:
            store.write("k", "unknown", 2)
        assert proves_no_effect(checked.target, late.value) is None
        assert store._socket is None  # a late answer has no connection to arrive on
        checked.thaw("store1")
        until(lambda: witness.read("k") == Stored("unknown", 2), "the late write takes effect")
        assert in_time(lambda: store.read("other")) is None  # not the late answer to the write


def test_a_server_that_was_restarted_is_used_by_the_next_call(checked: Servers) -> None:
    with lock_of(checked) as lock:
        lock.release(lock.acquire("k", 30.0))
        checked.kill("lock1")
        with pytest.raises(ConnectionRefusedError) as refused:
            lock.acquire("k", 30.0)
        rule = proves_no_effect(checked.target, refused.value)
        assert rule is not None
        assert rule.name == "connection refused"
        checked.start("lock1")
        assert lock.acquire("k", 30.0).token == 2


def test_a_server_killed_before_it_answers_leaves_the_outcome_unknown(checked: Servers) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        with store_of(checked) as store:
            try:
                store.write("k", "v", 1)
            except OSError as error:
                failures.append(error)

    checked.freeze("store1")
    thread = threading.Thread(target=write)
    thread.start()
    port = checked.cluster["store1"].port
    until(lambda: _unread(checked.cluster["store1"].address, port), "the request has arrived")
    checked.kill("store1")
    thread.join()
    assert len(failures) == 1
    assert isinstance(failures[0], ConnectionError)
    assert proves_no_effect(checked.target, failures[0]) is None


def _unread(address: str, port: int) -> bool:
    """Whether bytes wait in the receive queue of a connection to this server (/proc/net/tcp)."""
    hexed = "".join(f"{int(part):02X}" for part in reversed(address.split("."))) + f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == hexed and row[3] == "01" and row[4][-8:] != "0" * 8 for row in rows)


def test_a_request_that_is_not_understood_is_proven_to_have_had_no_effect(
    checked: Servers,
) -> None:
    with lock_of(checked) as lock:
        with pytest.raises(BadRequestError) as bad:
            lock.acquire("k", -1.0)
        assert proves_no_effect(checked.target, bad.value) is not None
        assert lock.acquire("k", 1.0).token == 1


def test_the_version_is_ours() -> None:
    assert Atlasmart().version().startswith("atlasmart ")


def test_there_is_no_other_name_in_the_package() -> None:
    import targets.atlasmart as package

    with pytest.raises(AttributeError, match="Bazaar"):
        package.Bazaar  # noqa: B018 - looking is what raises
