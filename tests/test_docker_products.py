"""Unmodified images as servers, and etcd over TLS, its own and a compose project's."""

import subprocess
from pathlib import Path

import pytest

from harness.docker.compose import command
from harness.docker.engine import EngineError
from harness.errors import UsageError
from harness.runfile import from_values, read
from tests.live import ROOT
from tests.support_docker import api, engine_trouble
from tests.test_docker_run import winkle

# It takes 5 s, and begins once a holder writes for the first time, which a busy machine delays:
# runs are longer than they seem to need.
PAUSE = "pause:who=holder,at=before-write,for=2.5leases"
NOWHERE = "127.0.0.1:9/nobody/nothing:1"


def needs(*names: str, compose: bool = False) -> pytest.MarkDecorator:
    """Return the mark of a test that runs these images; nothing is pulled for it."""
    why = engine_trouble()
    if compose:
        try:
            command()
        except EngineError as error:
            why = str(error)
    if not why:
        with api() as client:
            lacking = [name for name in names if not client.images(f"vanwinkle/{name}:offline")]
        why = f"no image of {', '.join(lacking)} (compose/products makes it)" if lacking else ""
    return pytest.mark.skipif(bool(why), reason=why or "it can run")


def image(name: str) -> str:
    return f"vanwinkle/{name}:offline"


# ------------------------------------------------------------------------------ without an engine


def test_an_image_is_refused_where_there_are_no_containers() -> None:
    with pytest.raises(UsageError) as told:
        read("lock:\n  name: etcd\n  options:\n    image: some/etcd:1\nstore: atlasmart\n")
    assert str(told.value).startswith("run.yaml:4:12: lock.options.image: found ")
    assert "allowed with backend: docker" in str(told.value)


@pytest.mark.parametrize("name", ["etcd", "hazelcast", "nats", "valkey", "zookeeper"])
def test_products_that_can_be_images_need_nothing_here(name: str) -> None:
    made = from_values({"lock": f"{name}[image=x/y:1]", "store": "atlasmart", "backend": "docker"})
    assert made.lock.options["image"] == "x/y:1"


@pytest.mark.parametrize(
    "target",
    ["etcd[image=x,version=3.7.1]", "valkey[image=x,binary=y]", "zookeeper[image=x,home=y]"],
)
def test_one_thing_says_which_server_it_is(target: str) -> None:
    with pytest.raises(UsageError, match="both say which server it is: give one of them"):
        from_values({"lock": target, "store": "atlasmart", "backend": "docker"})


# --------------------------------------------------------------------------------- with an engine


@pytest.mark.docker
@needs()
def test_an_image_that_is_nowhere_is_told_and_nothing_is_built(tmp_path: Path) -> None:
    said = winkle(tmp_path, "--lock", f"etcd[image={NOWHERE}]", "--store", "atlasmart")
    told = said["error"] or said["results"]["error"]
    assert f"the engine has no image {NOWHERE}, and cannot pull it: " in told


@pytest.mark.real
@pytest.mark.docker
@needs("etcd", "valkey")
def test_servers_from_their_own_images_with_tls_pass(tmp_path: Path) -> None:
    lock = f"etcd[image={image('etcd')},nodes=1,tls=true,auth=true]"
    store = f"valkey[image={image('valkey')},fenced=true]"
    words = ("--lock", lock, "--store", store, "--fault", PAUSE)
    kill = ("--fault", "kill:who=leader,at=5s,for=500ms")
    said = winkle(tmp_path, *words, *kill, "--time", "12s", "--seed", "3")
    assert said["results"]["verdict"]["verdict"] == "pass", said
    facts = said["results"]["facts"]
    with api() as client:
        number = client.inspect_image(image("etcd"))["Id"]
    assert facts["image of etcd1"] == f"{image('etcd')} ({number})"
    assert facts["image of valkey1"].startswith(image("valkey"))
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or b"PRIVATE KEY" not in path.read_bytes(), path


@pytest.mark.real
@pytest.mark.docker
@pytest.mark.parametrize(
    ("product", "size", "store"),
    [
        pytest.param("zookeeper", "nodes=1", "zookeeper[fence=guarded]", marks=needs("zookeeper")),
        pytest.param("hazelcast", "nodes=3", "hazelcast[fenced=true]", marks=needs("hazelcast")),
        pytest.param("nats", "nodes=3", "nats[fenced=true]", marks=needs("nats")),
    ],
)
def test_other_servers_from_their_own_images(
    tmp_path: Path, product: str, size: str, store: str
) -> None:
    lock = f"{product}[image={image(product)},{size}]"
    words = ("--lock", lock, "--store", store, "--fault", PAUSE)
    said = winkle(tmp_path, *words, "--time", "14s", "--seed", "3")
    assert said["results"]["verdict"]["verdict"] == "pass", said


@pytest.mark.real
@pytest.mark.docker
@needs("etcd", compose=True)
def test_a_project_with_tls_and_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = tmp_path / "certificates"
    subprocess.run(
        [ROOT / "compose" / "etcd" / "certificates", certificates], check=True, capture_output=True
    )
    monkeypatch.setenv("ETCD_CERTIFICATES", str(certificates))
    monkeypatch.setenv("ETCD_IMAGE", image("etcd"))
    compose = ("--compose", str(ROOT / "compose" / "etcd" / "secure.yml"), "--servers", "etcd*")
    lock = f"etcd[auth=true,ca={certificates}/ca.crt]"
    words = ("--lock", lock, "--store", "etcd[guarded=true]", "--fault", PAUSE)
    said = winkle(tmp_path, *compose, *words, "--time", "12s", "--seed", "3")
    assert said["results"]["verdict"]["verdict"] == "pass", said
    facts = said["results"]["facts"]
    assert image("etcd") in facts["image of etcd1, etcd2, etcd3"]
    assert "etcd" not in facts  # no program of this machine has anything to do with it
