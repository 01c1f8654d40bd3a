"""Removing what runs left in the engine, by label and never by anything else.

A container that is paused takes no order, so it is let go first; one that is removed by somebody
else meanwhile was removed.  Networks and volumes go when the containers that used them are gone.

Engines count the users of a network, and can lose count when several come and go at the same time
(moby issue 42119): such a network is taken for used, by nobody, until the engine is started again.
So containers with an address of their own go one after the other, and what is held is told.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.docker import vigil
from harness.docker.engine import (
    OWNER_LABEL,
    RUN_LABEL,
    EngineError,
    connect,
    engine_does,
    owner_is_dead,
)
from harness.docker.images import drop_old
from harness.docker.project import PROJECT_LABEL, composed_name, owner_volume

_THREADS = 8


def remove(api: Any, runs: Iterable[str]) -> int:
    """Remove all that bears the labels of these runs; return how many things that were.

    Raises EngineError when something could not be removed.
    """
    return sum(_remove(api, run) for run in runs)


def thaw(api: Any, run: str) -> None:
    """Let everything of a run go on that the engine froze.  Raises EngineError."""
    with engine_does(f"what is frozen of run {run} cannot be thawed"):
        frozen = _both(run, lambda only: api.containers(filters=only | {"status": "paused"}))
        _each([container["Id"] for container in frozen], api.unpause)


def dead_runs(api: Any) -> list[str]:
    """Return the runs of which something is left and whose owner is dead."""
    found = {}
    with engine_does("what is left of earlier runs cannot be listed"):
        for labels in _all_labels(api):
            found[labels[RUN_LABEL]] = labels.get(OWNER_LABEL, "")
    return sorted(run for run, owner in found.items() if owner_is_dead(owner))


def sweep(api: Any) -> list[str]:
    """Remove what dead runs left; return the runs of which this was the one that removed it."""
    removed = []
    for run in dead_runs(api):
        with vigil.heard(run) as alone:
            if not alone:
                vigil.await_end(run)
            if remove(api, [run]) > len(held(api, run)):
                removed.append(run)
    return removed


def held(api: Any, run: str) -> list[str]:
    """Return why each network is still there that is left of a run.  Raises EngineError."""
    with engine_does(f"the networks of run {run} cannot be looked at"):
        left = [api.inspect_network(one["Id"]) for one in _networks(api, run)]
    told = []
    for network in left:
        users = ", ".join(sorted(one["Name"] for one in network["Containers"].values()))
        by = f"by {users}" if users else "by nobody: it goes once the engine was started again"
        told.append(f"the engine takes the network {network['Name']} for used, {by}")
    return told


def _all_labels(api: Any) -> Iterable[dict[str, str]]:
    of_any_run = {"label": RUN_LABEL}
    for container in api.containers(all=True, filters=of_any_run):
        yield container["Labels"]
    for network in api.networks(filters=of_any_run):
        yield network["Labels"]
    for volume in api.volumes(filters=of_any_run)["Volumes"] or ():
        yield volume["Labels"]


def _remove(api: Any, run: str) -> int:
    """Remove all of one run."""
    with engine_does(f"what is left of run {run} cannot be removed"):
        containers = _both(run, lambda only: api.containers(all=True, filters=only))
        joined = [one["Id"] for one in containers if _joins_another(one)]
        addressed = [one["Id"] for one in containers if not _joins_another(one)]
        _each(joined, lambda one: _remove_container(api, one))
        _each(addressed, lambda one: _remove_container(api, one), threads=1)
        networks = [network["Id"] for network in _networks(api, run)]
        _each(networks, api.remove_network)
        found = _both(run, lambda only: api.volumes(filters=only)["Volumes"] or ())
        # Whose a network is that compose made, only the volume says.
        said = {owner_volume(run)} if _networks(api, run) else set()
        volumes = [volume["Name"] for volume in found if volume["Name"] not in said]
        _each(volumes, lambda name: api.remove_volume(name, force=True))
    return len(containers) + len(networks) + len(volumes)


def _joins_another(container: Mapping[str, Any]) -> bool:
    """Whether it lives in the network of another container."""
    return str(container["HostConfig"]["NetworkMode"]).startswith("container:")


def _networks(api: Any, run: str) -> list[Any]:
    return _both(run, lambda only: api.networks(filters=only))


def _both(run: str, listed: Callable[[dict[str, str]], Iterable[Any]]) -> list[Any]:
    """Return what bears the label of a run, and what compose made for it."""
    ours, composed = f"{RUN_LABEL}={run}", f"{PROJECT_LABEL}={composed_name(run)}"
    return [one for label in (ours, composed) for one in listed({"label": label})]


def _remove_container(api: Any, container: str) -> None:
    from docker.errors import APIError

    with contextlib.suppress(APIError):
        api.unpause(container)
    api.remove_container(container, force=True, v=True)


def _each(things: list[str], remove_one: Callable[[str], Any], threads: int = _THREADS) -> None:
    from docker.errors import APIError

    def gone(thing: str) -> None:
        try:
            remove_one(thing)
        except APIError as error:
            # Removed by somebody else (404), or just now being removed (409, of a network 403).
            if error.status_code not in (403, 404, 409):
                raise

    if things:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(gone, things))


def heal() -> list[str]:
    """Remove what dead runs left, if there is an engine; return a line for each run and problem.

    Old images of ours go as well, which is no undoing, and is not told.
    """
    try:
        api = connect()
    except EngineError:
        return []
    try:
        told = [f"{run}: removed the containers of a dead run" for run in sweep(api)]
        told += [f"{run}: {why}" for run in dead_runs(api) for why in held(api, run)]
        drop_old(api)
    except EngineError as error:
        return [f"containers: {error}"]
    else:
        return told
    finally:
        api.close()
