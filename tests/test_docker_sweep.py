"""What is removed of a run, and what is told of a network that the engine does not give up."""

import secrets
import subprocess
import sys
from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

import pytest

from harness.docker import sweep
from harness.docker.engine import OWNER_LABEL, RUN_LABEL, owner, owner_is_dead
from harness.docker.project import owner_volume, run_name
from tests.support_docker import api, needs_engine

pytestmark = needs_engine()
NAME = "a_stranger_of_the_tests"


@pytest.fixture
def engine() -> Iterator[Any]:
    with api() as client:
        yield client


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the label of a process that only this one takes for dead.

    So no other run, which looks for what dead ones left, removes it under these tests.
    """
    argv = [sys.executable, "-c", "from harness.docker.engine import *; print(owner()); input()"]
    with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        label = process.stdout.readline().strip()
        monkeypatch.setattr(sweep, "owner_is_dead", lambda it: it == label or owner_is_dead(it))
        yield label
        process.kill()


@pytest.fixture
def run(engine: Any, dead: str) -> Iterator[str]:
    """Make a network of a dead run, with the volume that says so."""
    number = secrets.token_hex(4)
    labels = {RUN_LABEL: number, OWNER_LABEL: dead}
    engine.create_volume(owner_volume(number), labels=labels)
    engine.create_network(run_name(number), internal=True, labels=labels)
    yield number
    sweep.remove(engine, [number])


def stranger(engine: Any, run: str) -> str:
    """Let a container of somebody else live on the run's network."""
    (image,) = {one["Id"] for one in engine.images("vanwinkle/etcd:offline")} or {""}
    if not image:
        pytest.skip("no image of etcd (compose/products makes it)")
    host = engine.create_host_config(network_mode=run_name(run))
    argv = ["/usr/local/bin/etcd", "--data-dir", "/tmp/x"]
    name = f"{NAME}_{run}"
    made = engine.create_container(image, [], entrypoint=argv, host_config=host, name=name)
    engine.start(made["Id"])
    return str(made["Id"])


def test_a_network_that_is_used_stays_and_is_told_with_its_user(engine: Any, run: str) -> None:
    container = stranger(engine, run)
    try:
        assert run not in sweep.sweep(engine)
        (told,) = (line for line in sweep.heal() if line.startswith(run))
        assert told == (
            f"{run}: the engine takes the network {run_name(run)} for used, by {NAME}_{run}"
        )
        assert engine.inspect_container(container)["State"]["Running"]
        assert run in sweep.dead_runs(engine)  # whoever comes later knows whose it is
        assert engine.volumes(filters={"name": owner_volume(run)})["Volumes"]
    finally:
        engine.remove_container(container, force=True, v=True)
    assert run in sweep.sweep(engine)
    assert sweep.held(engine, run) == []
    assert not engine.volumes(filters={"name": owner_volume(run)})["Volumes"]


def test_a_network_that_nobody_uses_and_the_engine_keeps_is_told_with_what_helps(
    engine: Any, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "remove_network", lambda _: None)
    assert sweep.remove(engine, [run]) == 1
    (told,) = sweep.held(engine, run)
    assert told == (
        f"the engine takes the network {run_name(run)} for used,"
        " by nobody: it goes once the engine was started again"
    )


def test_what_a_live_process_owns_is_not_swept(engine: Any) -> None:
    number = secrets.token_hex(4)
    engine.create_volume(owner_volume(number), labels={RUN_LABEL: number, OWNER_LABEL: owner()})
    try:
        assert number not in sweep.dead_runs(engine)
    finally:
        sweep.remove(engine, [number])
    assert not engine.volumes(filters={"name": owner_volume(number)})["Volumes"]
