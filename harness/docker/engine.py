"""The engine, as its API shows it, and its complaints in words that say what to do.

Everything that a run makes carries two labels: which run it belongs to, and which process owns it.
Calls block; they are made from threads, or before there is an event loop.
"""

import contextlib
import os
import platform
import socket
from collections.abc import Iterator
from typing import Any

from harness import procfs
from harness.errors import HarnessError
from harness.process import ProcessId

RUN_LABEL = "vanwinkle.run"
OWNER_LABEL = "vanwinkle.owner"
CALL_S = 60
_CONNECTIONS = 64
_UNIX = "unix://"
_SOCKET = "/var/run/docker.sock"
_LOG_LINES = 15


class EngineError(HarnessError):
    """The engine cannot be reached, or refused something; the message says what to do."""


def connect() -> Any:
    """Return the engine's API client (`docker.APIClient`).  Raises EngineError."""
    try:
        _knock()
    except OSError as error:
        raise EngineError(_unreachable(error)) from error
    import docker
    from docker.errors import DockerException

    try:
        client: Any = docker.from_env(timeout=CALL_S, max_pool_size=_CONNECTIONS).api
    except DockerException as error:
        raise EngineError(_unreachable(error)) from error
    return client


def _knock() -> None:
    """Connect to the engine's Unix socket, if it has one.  Raises OSError."""
    where = os.environ.get("DOCKER_HOST") or f"{_UNIX}{_SOCKET}"
    if where.startswith(_UNIX):
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(where.removeprefix(_UNIX))


def _unreachable(error: Exception) -> str:
    where = os.environ.get("DOCKER_HOST") or f"the socket {_SOCKET}"
    match error:
        case PermissionError():
            return (
                f"no right to use the Docker engine at {where}: run as root, or join the group "
                "of the socket (usermod -aG docker USER, then log in again)"
            )
        case OSError():
            return (
                f"no Docker engine answers at {where} ({error.strerror or error}): start it "
                "(systemctl start docker, or Docker Desktop), or set DOCKER_HOST"
            )
    return f"no Docker engine answers at {where}: {error}"


def _os_error(error: BaseException | None) -> OSError | None:
    """Return the failed system call that libraries wrapped in exceptions of their own."""
    if error is None:
        return None
    ours = type(error).__module__ == "builtins"
    if isinstance(error, OSError) and ours and error.errno is not None:
        return error
    inner = [*(arg for arg in error.args if isinstance(arg, BaseException)), error.__cause__]
    return next((found for one in inner if (found := _os_error(one))), None)


@contextlib.contextmanager
def engine_does(what: str) -> Iterator[None]:
    """Turn the engine's refusals into an EngineError: `what` failed.  For a `with` block."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except APIError as error:
        said = str(error.explanation or error).strip()
        raise EngineError(f"{what}: the engine says: {said}{advice(said)}") from error
    except (DockerException, RequestException) as error:
        raise EngineError(f"{what}: {_os_error(error) or error}") from error


def advice(said: str) -> str:
    """Return what to do about a complaint of the engine, in brackets, or nothing."""
    if "address pool" in said:
        return " (docker network prune removes networks that nobody uses)"
    if "port is already allocated" in said or "address already in use" in said:
        return " (another program or container has that port: end it, or publish another one)"
    return ""


def last_lines(api: Any, container: str) -> str:
    """Return the last lines that a container printed, introduced."""
    from docker.errors import DockerException

    try:
        said = api.logs(container, tail=_LOG_LINES).decode(errors="backslashreplace").rstrip()
    except (DockerException, OSError) as error:
        return f"its log cannot be read ({error})"
    return f"its last lines:\n{said}" if said else "it printed nothing"


def is_here(api: Any) -> bool:
    """Whether the engine runs on this machine's kernel, and on no other.  Raises EngineError."""
    with engine_does("the engine cannot be asked where it runs"):
        return bool(api.info()["KernelVersion"] == platform.release())


def owner() -> str:
    """Return the label of what this process owns: machine, boot, pid space, pid and start."""
    pid = os.getpid()
    space = procfs.namespace_inode(pid, "pid")
    return f"{socket.gethostname()}/{procfs.boot_id()}/{space}/{pid}/{procfs.start_ticks(pid)}"


def owner_is_dead(label: str) -> bool:
    """Whether the process that a label names certainly lives no longer.

    What another machine or another container's processes own is nobody's business here.
    """
    try:
        host, boot, space, pid, start = label.split("/")
        if host != socket.gethostname():
            return False
        if boot != procfs.boot_id():
            return True
        if int(space) != procfs.namespace_inode(os.getpid(), "pid"):
            return False
        return not procfs.alive(ProcessId(int(pid), int(start)))
    except ValueError:
        return False
