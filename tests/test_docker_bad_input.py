"""What a user gets wrong with containers: one message that says it, and nothing that is left."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support_compose import await_nothing_of_compose, marked, project, spec, winkle
from tests.support_docker import api

Services = dict[str, dict[str, Any]]
NOWHERE = "127.0.0.1:9/nobody/nothing:1"  # a registry that refuses at once


def test_an_engine_that_does_not_run_is_told_in_one_message(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "harness.cli", "run", "--backend", "docker"]
    done = subprocess.run(
        [*argv, "--lock", "atlasmart", "--store", "atlasmart", "--out", str(tmp_path / "runs")],
        env=os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 255
    said = re.sub(r"\s+", " ", done.stderr)
    assert f"no Docker engine answers at unix://{tmp_path}/nobody.sock" in said
    assert "start it (systemctl start docker" in said
    assert "Traceback" not in done.stderr


def a_missing_image(services: Services, _port: int) -> None:
    services["etcd2"]["image"] = NOWHERE


def a_port_that_is_taken(services: Services, port: int) -> None:
    services["etcd2"]["ports"] = [f"127.0.0.1:{port}:2379"]


def never_healthy(services: Services, _port: int) -> None:
    services["etcd1"]["healthcheck"] = {
        "test": ["CMD", "/usr/local/bin/etcd", "--no-such-flag"],
        "interval": "1s",
        "retries": 1,
    }
    services["etcd2"]["depends_on"] = {"etcd1": {"condition": "service_healthy"}}


def an_end_at_once(services: Services, _port: int) -> None:
    services["etcd3"]["command"] = ["--data-dir=/proc/1/nothing"]


@marked
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (a_missing_image, [NOWHERE, "connection refused"]),
        (a_port_that_is_taken, ["address already in use", "publish another one"]),
        (never_healthy, ["unhealthy", "service etcd1 is unhealthy", '"level":"info"']),
        (
            an_end_at_once,
            ["etcd3 ended at the start with exit code", "cannot access data directory"],
        ),
    ],
    ids=lambda what: getattr(what, "__name__", ""),
)
def test_a_project_that_cannot_come_up_is_told_with_its_reason_and_removed(
    tmp_path: Path, spoil: Callable[[Services, int], None], words: list[str]
) -> None:
    file = tmp_path / "docker-compose.yml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = project()
        spoil(given["services"], taken.getsockname()[1])
        if spoil is a_port_that_is_taken:
            given["networks"]["inside"]["internal"] = False
        file.write_text(yaml.safe_dump(given))
        said = winkle(tmp_path, spec(tmp_path))
    assert said["exit_code"] == 255
    told = said["error"] or said["results"]["error"]
    for word in words:
        assert word in told, told
    assert "Traceback" not in told
    with api() as client:
        await_nothing_of_compose(client)
