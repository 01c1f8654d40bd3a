"""A stranger's compose project for tests: three members of etcd, as its own documentation has it.

Other runs may use the engine meanwhile, so what is left is told by names that only runs with a
compose file have.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from harness.docker.compose import command
from harness.docker.engine import OWNER_LABEL, RUN_LABEL, EngineError, owner_is_dead
from harness.docker.lab import DockerLab
from harness.runfile import from_values, to_yaml
from harness.spec import RunSpec
from tests.support_docker import api, await_nothing, engine_trouble

ADAPTER = Path(__file__).resolve().parent.parent / "docs" / "examples" / "etcd_over_http.py"
IMAGE = "vanwinkle/etcd:offline"
NAMES = ("etcd1", "etcd2", "etcd3")
GONE_S = 30.0
OF_COMPOSE = re.compile(r"winkle(?P<run>[0-9a-f]+)(_inside|_etcd\d_data|-etcd\d-1)$")


def _trouble() -> str:
    """Return why the project cannot be brought up here, "" when it can."""
    if trouble := engine_trouble():
        return f"Docker: {trouble}"
    try:
        command()
    except EngineError as error:
        return str(error)
    with api() as client:
        return "" if client.images(IMAGE) else f"no image {IMAGE} (compose/products etcd makes it)"


_WHY_NOT = _trouble()
needs_project = [
    pytest.mark.docker,
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "the project can be brought up"),
]


def marked(test: Any) -> Any:
    for mark in needs_project:
        test = mark(test)
    return test


def project() -> dict[str, Any]:
    """Return the compose file of three members, on a network that leads nowhere."""
    peers = ",".join(f"{name}=http://{name}:2380" for name in NAMES)
    services = {
        name: {
            "image": IMAGE,
            "entrypoint": "/usr/local/bin/etcd",
            "command": [
                f"--name={name}",
                f"--initial-advertise-peer-urls=http://{name}:2380",
                "--listen-peer-urls=http://0.0.0.0:2380",
                f"--advertise-client-urls=http://{name}:2379",
                "--listen-client-urls=http://0.0.0.0:2379",
                f"--initial-cluster={peers}",
                "--initial-cluster-token=mys3cr3ttok3n",
                "--data-dir=/etcd_data",
            ],
            "volumes": [f"{name}_data:/etcd_data"],
            "networks": ["inside"],
        }
        for name in NAMES
    }
    volumes: dict[str, Any] = {f"{name}_data": {} for name in NAMES}
    return {
        "services": services,
        "volumes": volumes,
        "networks": {"inside": {"internal": True}},
    }


def spec(tmp_path: Path, **more: Any) -> RunSpec:
    """Return a run of that project, in a folder of its own."""
    file = tmp_path / "docker-compose.yml"
    if not file.exists():
        file.write_text(yaml.safe_dump(project()))
    adapter = f"{ADAPTER}:Etcd"
    values = {"lock": adapter, "store": adapter, "compose": str(file), "servers": "etcd*"}
    return from_values(values | more)


def winkle(tmp_path: Path, wanted: RunSpec) -> dict[str, Any]:
    """Live a run and return what it says."""
    file = tmp_path / "run.yaml"
    file.write_text(to_yaml(wanted))
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--json"]
    done = subprocess.run(
        [*argv, "--out", str(tmp_path / "runs")],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        check=False,
        timeout=240,
    )
    assert done.stdout, done.stderr.decode()
    said: dict[str, Any] = msgspec.json.decode(done.stdout)
    return said


def runs(client: Any) -> dict[str, str]:
    """Return the compose runs that the engine knows, with their owners."""
    volumes = client.volumes(filters={"name": "-owner"})["Volumes"] or ()
    return {one["Labels"][RUN_LABEL]: one["Labels"][OWNER_LABEL] for one in volumes}


def await_nothing_of_compose(client: Any) -> None:
    """Wait until nothing of compose runs is there that no live process owns.

    A test that kills a run at the same time leaves some for a moment.
    """
    await_nothing(lambda: _left_by_compose(client), client, GONE_S)


def _left_by_compose(client: Any) -> set[str]:
    owned = {run for run, owner in runs(client).items() if not owner_is_dead(owner)}
    found = {name: match["run"] for name in _names(client) if (match := OF_COMPOSE.match(name))}
    return {name for name, run in found.items() if run not in owned}


def _names(client: Any) -> set[str]:
    return {
        *(name.strip("/") for one in client.containers(all=True) for name in one["Names"]),
        *(one["Name"] for one in client.networks()),
        *(one["Name"] for one in client.volumes()["Volumes"] or ()),
    }


@contextmanager
def lab(tmp_path: Path) -> Iterator[DockerLab]:
    (tmp_path / "logs").mkdir()
    made = DockerLab([*NAMES, "w1"], spec(tmp_path), tmp_path)
    try:
        yield made
    finally:
        made.close()
