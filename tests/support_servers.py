"""Starts the servers of a target as plain processes, each on a loopback address of its own.

Addresses differ between test processes, so that several may run on one machine at the same time.
"""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest

from harness.cluster import command
from harness.errors import UsageError
from harness.target import (
    Cluster,
    Grant,
    LockClient,
    Place,
    Ready,
    RefusedError,
    Secretive,
    Server,
    Target,
)

T = TypeVar("T")
PATIENCE_S = 60.0  # for what must come: a busy machine is no finding
NEVER = b"\0 no request contains this \0"
_hosts = itertools.count(1)


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds; fails the test when it does not."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"waited {patience_s} s in vain: {what}"
        time.sleep(0.01)


def becomes(look: Callable[[], object], wanted: object) -> None:
    """Wait until a look with little patience sees what it should, on a busy machine too."""
    until(lambda: look() == wanted, f"the look to see {wanted!r}")


def in_time(call: Callable[[], T]) -> T:
    """Return the answer to a client with little patience; a busy machine may need several tries."""
    answers: list[T] = []
    last = "nothing"

    def answered() -> bool:
        nonlocal last
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told when none comes
            last = repr(error)
        return bool(answers)

    try:
        until(answered, "an answer in time")
    except AssertionError as error:
        raise AssertionError(f"{error}; at last: {last}") from None
    return answers[0]


def refused(call: Callable[..., Any], *args: Any) -> str:
    """Return the code with which a call is refused; it fails the test when the call is not."""
    with pytest.raises(RefusedError) as refusal:
        call(*args)
    return refusal.value.code


def taken(lock: LockClient, key: str, ttl_s: float) -> Grant:
    """Wait for the lock; a refusal that does not say that somebody has it fails the test."""
    grants: list[Grant] = []

    def taking() -> bool:
        try:
            grants.append(lock.acquire(key, ttl_s))
        except RefusedError as refusal:
            assert refusal.code == "held"  # noqa: PT017 - not the error is tested, but the wait
        return bool(grants)

    until(taking, f"{key} is granted")
    return grants[0]


def fresh_address() -> str:
    """Return a loopback address that no other test of this machine uses."""
    pid = os.getpid()
    return f"127.{64 + pid % 64}.{pid // 64 % 250}.{next(_hosts)}"


def accepts(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), 0.5):
            return True
    except OSError:
        return False


def servers_of(target: Target, folder: Path) -> "Servers":
    """Return its servers, not started yet; the test is skipped where something is missing here."""
    try:
        return Servers(target, folder)
    except UsageError as missing:
        pytest.skip(f"{target.name}: {missing}")


class ReplyEater:
    """A proxy before one server that swallows the reply to the request that contains `marker`.

    The client sees its connection end instead, and may connect again; the server notices nothing.
    """

    def __init__(self, place: Place, marker: bytes) -> None:
        self._marker = marker
        self.place = replace(place, address=fresh_address())
        self._behind = (place.address, place.port)
        self._eats = threading.Event()
        self._listener = socket.create_server((self.place.address, self.place.port))
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._behind)
                self._ends += [client, server]
                for source, sink, replies in ((client, server, False), (server, client, True)):
                    pump = (source, sink, replies)
                    threading.Thread(target=self._pump, args=pump, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if replies and self._eats.is_set():
                    self._eats.clear()
                    sink.shutdown(socket.SHUT_RDWR)
                    continue
                if not replies and self._marker in data:
                    self._eats.set()
                    self._marker = NEVER
                sink.sendall(data)

    def close(self) -> None:
        """End every connection."""
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Servers:
    """The running servers of one target; as a context it kills all of them at the end."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self._servers: dict[str, Server] = {server.name: server for server in target.servers()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        places = []
        for server in self._servers.values():
            data = folder / server.name
            data.mkdir(parents=True)
            places.append(Place(server.name, fresh_address(), server.port, server.role, str(data)))
        self.cluster = Cluster(places)
        self.secrets: Mapping[str, str] = {}
        if isinstance(target, Secretive) and (made := target.make_secrets(self.cluster)):
            self.secrets = made.known
            for name, files in made.files.items():
                secrets = Path(self.cluster[name].secrets)
                secrets.mkdir(mode=0o700)
                for file, content in files.items():
                    (secrets / file).write_bytes(content)
            target.know(self.cluster, self.secrets)

    def start(self, *names: str) -> None:
        """Start these servers (none named: all), and wait until the target is ready."""
        chosen = names or tuple(self._servers)
        for name in chosen:
            self._spawn(name)
        for name in chosen:
            place = self.cluster[name]
            until(lambda place=place: self._up(place), f"{name} listens")  # type: ignore[misc]
        target = self.target
        if isinstance(target, Ready):
            until(lambda: target.ready(self.cluster) is None, "the target is ready")

    def _spawn(self, name: str) -> None:
        argv, env = command(self._servers[name], self.cluster)
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **env},
            )

    def _log(self, name: str) -> Path:
        return Path(self.cluster[name].data).parent / f"{name}.log"

    def log(self, name: str) -> str:
        """Return what a server has printed."""
        return self._log(name).read_text(errors="backslashreplace")

    def _up(self, place: Place) -> bool:
        ended = self._processes[place.name].poll()
        assert ended is None, f"{place.name} ended with {ended}: {self.log(place.name)[-2000:]}"
        return accepts(place.address, place.port)

    def kill(self, *names: str) -> None:
        """Kill -9, and wait until they are gone."""
        for name in names or tuple(self._processes):
            process = self._processes.pop(name)
            process.kill()
            process.wait(PATIENCE_S)

    def wait(self, name: str) -> int:
        """Wait for a server to end by itself and return its exit code."""
        return self._processes.pop(name).wait(PATIENCE_S)

    def freeze(self, name: str) -> None:
        """SIGSTOP, and wait until every thread is stopped."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{process.pid}/task")
        until(
            lambda: all(
                (task / "stat").read_text().rpartition(") ")[2][0] == "T"
                for task in tasks.iterdir()
            ),
            f"{name} is stopped",
        )

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
