"""An engine for the tests: whether one answers, and a lab of three nodes in it."""

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from docker.errors import APIError

from harness.docker.engine import OWNER_LABEL, EngineError, connect, owner_is_dead
from harness.docker.lab import DockerLab
from harness.docker.node import DockerNode
from harness.docker.project import owner_volume
from harness.runfile import from_values
from tests.live import until as live_until

T = TypeVar("T")
BOUND_S = 30.0
_NETWORK = re.compile(r"winkle-?(?P<run>[0-9a-f]{8})(_\w+)?$")


@functools.cache
def engine_trouble() -> str:
    """Return why no engine answers, "" when one does."""
    try:
        connect().close()
    except EngineError as error:
        return str(error)
    return ""


def needs_engine() -> list[pytest.MarkDecorator]:
    """Return the marks of a file whose tests use the engine: without one they are skipped."""
    trouble = engine_trouble()
    return [pytest.mark.docker, pytest.mark.skipif(bool(trouble), reason=f"Docker: {trouble}")]


@contextmanager
def api() -> Iterator[Any]:
    """Open a client, and close it."""
    client = connect()
    try:
        yield client
    finally:
        client.close()


@contextmanager
def lab(tmp_path: Path, *names: str) -> Iterator[DockerLab]:
    """Build nodes, and remove them again."""
    (tmp_path / "logs").mkdir(exist_ok=True)
    spec = from_values({"lock": "atlasmart", "store": "atlasmart", "backend": "docker"})
    made = DockerLab(names, spec, tmp_path)
    try:
        yield made
    finally:
        made.close()


def node(made: DockerLab, name: str) -> DockerNode:
    """Return a node of a lab of ours."""
    found = made.nodes[name]
    assert isinstance(found, DockerNode)
    return found


def leavings(client: Any) -> set[str]:
    """Return everything of ours in the engine whose owner is dead, or is not told.

    What a live process owns belongs to a test that runs at the same time.
    """
    found = {
        **{one["Names"][0].strip("/"): one["Labels"] for one in client.containers(all=True)},
        **{one["Name"]: one["Labels"] for one in client.networks()},
        **{one["Name"]: one["Labels"] for one in client.volumes()["Volumes"] or ()},
    }
    ours = {name: labels or {} for name, labels in found.items() if name.startswith("winkle-")}
    return {
        name
        for name, labels in ours.items()
        if OWNER_LABEL not in labels or owner_is_dead(labels[OWNER_LABEL])
    }


def await_nothing(look: Callable[[], set[str]], client: Any, bound_s: float) -> None:
    """Wait until nothing is left but what the engine takes for used by nobody.

    That is the engine's own fault (moby issue 42119), and told by the sweep.
    """
    try:
        live_until(lambda: not look(), "an engine as before", bound_s)
    except AssertionError as error:
        left = look()
        if left := left - held_by_nobody(client, left):
            raise AssertionError(f"left: {', '.join(sorted(left))}") from error


def held_by_nobody(client: Any, left: set[str]) -> set[str]:
    """Return the networks of these that the engine refuses to remove though nothing is on them.

    With the volume that says whose such a network is.
    """
    held: set[str] = set()
    for one in client.networks():
        match = _NETWORK.match(one["Name"])
        if match is None or one["Name"] not in left:
            continue
        if client.inspect_network(one["Id"])["Containers"]:
            continue
        try:
            client.remove_network(one["Id"])
        except APIError as error:
            if "has active endpoints" in str(error.explanation):
                held |= {one["Name"], owner_volume(match["run"])}
    return held


async def until(look: Callable[[], T], what: str) -> T:
    """Return what `look` returns as soon as it is something, while the event loop goes on."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BOUND_S
    while loop.time() < deadline:
        if found := look():
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited {BOUND_S:g} s for {what}")


# One for all: a lab hears its holders in the loop in which it was first used.
_loop = asyncio.Runner()


def live(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function, bounded in time."""

    async def bounded() -> T:
        async with asyncio.timeout(2 * BOUND_S):
            return await work()

    return _loop.run(bounded())
