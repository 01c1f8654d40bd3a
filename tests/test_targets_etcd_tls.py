"""etcd over TLS: certificates of the run's own, and those of a cluster that somebody secured."""

import base64
import os
import queue
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness import released
from harness.errors import UsageError
from harness.runfile import from_flags, from_values
from harness.target import RefusedError, Secrets
from targets import _etcd_auth
from targets._etcd_access import User
from targets._etcd_gateway import Gateway
from targets.etcd import Etcd
from tests.support_servers import Servers, becomes, in_time, servers_of, until

SMALL: dict[str, Any] = {"nodes": 1, "heartbeat_ms": 50, "election_ms": 500}


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers_of(Etcd(**SMALL, tls=True, auth=True), tmp_path_factory.mktemp("tls")) as servers:
        servers.start()
        yield servers


def knowing(servers: Servers, **options: Any) -> Etcd:
    """Return another target that was told the secrets of these servers."""
    made = Etcd(**SMALL, **options)
    made.know(servers.cluster, servers.secrets)
    return made


@pytest.mark.real
def test_clients_with_the_certificate_lock_and_write(safe: Servers) -> None:
    target = knowing(safe, tls=True, auth=True, guarded=True)
    with (
        closing(target.lock(safe.cluster, 5.0)) as lock,
        closing(target.store(safe.cluster, 5.0)) as store,
    ):
        grant = in_time(lambda: lock.acquire("k", 5.0))
        lock.renew(grant)
        store.write("k", "mine", grant.token)
        stored = store.read("k")
        assert stored is not None
        assert stored.value == "mine"
        lock.release(grant)
    place = safe.cluster.places[0]
    becomes(lambda: target.leader(safe.cluster), "etcd1")
    becomes(lambda: target.answers(place), None)
    until(lambda: target.server_time(place) is not None, "the server's time")


@pytest.mark.real
def test_a_stranger_over_tls_is_refused(safe: Servers) -> None:
    target = knowing(safe, tls=True, auth=True)
    with (
        closing(target.store(safe.cluster, 5.0)) as store,
        closing(target.stranger(safe.cluster, 5.0)) as stranger,
    ):
        in_time(lambda: store.write("secret", "s", None))
        stranger.own("mine")
        with pytest.raises(RefusedError, match="denied"):
            stranger.read("secret")


@pytest.mark.real
def test_who_shows_no_certificate_or_trusts_another_authority_gets_nowhere(safe: Servers) -> None:
    with (
        closing(Etcd(**SMALL).store(safe.cluster, 2.0)) as plain,
        pytest.raises(Exception, match="UNAVAILABLE"),
    ):
        plain.read("k")
    others = Etcd(**SMALL, tls=True).make_secrets(safe.cluster)
    assert others is not None
    for known in (
        {**safe.secrets, "authorities": others.known["authorities"]},
        {**safe.secrets, "certificate": "", "key": ""},
    ):
        target = Etcd(**SMALL, tls=True)
        target.know(safe.cluster, known)
        assert target.ready(safe.cluster) == "etcd1 is not healthy"
        with (
            closing(target.store(safe.cluster, 2.0)) as store,
            pytest.raises(Exception, match="UNAVAILABLE"),
        ):
            store.read("k")


@pytest.mark.real
@pytest.mark.parametrize("version", ["3.4.3", "3.7.1"])
def test_users_and_tls_in_released_versions(version: str, tmp_path: Path) -> None:
    if released.binary("etcd", version) is None:
        pytest.skip(f"etcd {version} is not in the cache: winkle get etcd@{version}")
    with servers_of(Etcd(**SMALL, tls=True, auth=True, version=version), tmp_path) as servers:
        servers.start()
        with closing(servers.target.lock(servers.cluster, 5.0)) as lock:  # type: ignore[attr-defined]
            assert in_time(lambda: lock.acquire("k", 5.0)).token
        place = servers.cluster.places[0]
        gateway: Gateway = servers.target._gateway  # type: ignore[attr-defined]
        wrong = User("worker", "guessed")
        assert _etcd_auth.token(gateway, place, _etcd_auth.WORKER)
        assert _etcd_auth.token(gateway, place, wrong) is None


# ------------------------------------------------------------------------------- without a server


def own_files(folder: Path) -> dict[str, str]:
    """Write what a user has of his own cluster; return the options that name it."""
    made = Etcd(tls=True).make_secrets(_cluster())
    assert isinstance(made, Secrets)
    words = {"ca": "authorities", "cert": "certificate", "key": "key"}
    texts = {name: made.known[word] for name, word in words.items()} | {"password_file": "pw\n"}
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


def test_files_of_ones_own_are_read_and_start_nothing(tmp_path: Path) -> None:
    files = own_files(tmp_path)
    target = Etcd(**files, user="me")
    assert [server.argv for server in target.servers()] == [[], [], []]
    secrets = target.make_secrets(_cluster())
    assert secrets is not None
    assert secrets.known["password"] == "pw"  # noqa: S105 - this one is public
    key = Path(files["key"]).read_text()
    assert secrets.known["key"] == key
    assert not secrets.files
    target.know(_cluster(), secrets.known)
    shown = repr(target.__dict__) + repr(secrets)
    assert key.splitlines()[1] not in shown
    assert "pw" not in shown.replace("password", "")


@pytest.mark.parametrize(
    "options",
    [
        {"tls": True, "ca": "ca.crt"},
        {"cert": "c", "key": "k"},
        {"ca": "ca.crt", "key": "k"},
        {"common_name": "etcd"},
        {"user": "me"},
        {"auth": True, "user": "me", "password_file": "p"},
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give one of them|belong"):
        Etcd(**options)


def test_a_cluster_of_ones_own_is_not_started_here(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    with pytest.raises(UsageError, match=r"server etcd1: found argv \[\]"):
        from_values({"lock": f"etcd[user=me,password_file={password}]", "store": "atlasmart"})


def test_a_file_that_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--lock: .*ca\.crt cannot be read: .*No such file"):
        from_flags({("lock",): f"etcd[ca={tmp_path}/ca.crt]", ("store",): "atlasmart"})


@pytest.mark.parametrize("text", ["", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_that_is_no_certificate_is_named_before_anything_starts(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "ca.crt").write_text(text)
    with pytest.raises(UsageError, match=r"no certificates, or not of one pair: .*ca\.crt"):
        from_values({"lock": f"etcd[ca={tmp_path}/ca.crt]", "store": "atlasmart"})


def test_a_key_of_another_certificate_is_told_before_anything_starts(tmp_path: Path) -> None:
    one, other = (own_files(tmp_path / name) for name in ("one", "other"))
    with pytest.raises(UsageError, match=r"no certificates, or not of one pair: .*other/key"):
        Etcd(ca=one["ca"], cert=one["cert"], key=other["key"]).servers()


def test_certificates_verify_with_pythons_strictest_rules(tmp_path: Path) -> None:
    secrets = Etcd(tls=True).make_secrets(_cluster())
    assert isinstance(secrets, Secrets)
    context = ssl.create_default_context(cadata=secrets.known["authorities"])
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, data in secrets.files["etcd1"].items():
        (tmp_path / name).write_bytes(data)
    served.load_cert_chain(tmp_path / "member.crt", tmp_path / "member.key")
    for known_as in ("etcd", "127.0.0.9"):
        _shake_hands(served, context, known_as)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(served, context, "127.0.0.8")


def _shake_hands(served: ssl.SSLContext, context: ssl.SSLContext, known_as: str) -> None:
    """Connect through memory.  Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=known_as)
    server = served.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server) * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def _cluster() -> Any:
    from harness.target import Cluster, Place

    return Cluster([Place(f"etcd{n}", f"127.0.0.{8 + n}", 2379, "lock", "/d") for n in (1, 2, 3)])


# ------------------------------------------------------------------------------------ a whole run


@pytest.mark.real
@pytest.mark.sandbox
def test_a_run_over_tls_leaves_no_key_behind(tmp_path: Path) -> None:
    servers_of(Etcd(**SMALL, tls=True), tmp_path / "unused")
    words = ["--lock", "etcd[tls=true,auth=true,nodes=1]", "--store", "etcd", "--time", "3s"]
    words += ["--workers", "2", "--out", str(tmp_path / "runs"), "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness.cli", "run", *words],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (folder,) = (tmp_path / "runs").glob("2*")
    history = (folder / "history.jsonl").read_text()
    assert '"ok"' in history, done.stderr
    assert not (folder / "error.txt").exists(), (folder / "error.txt").read_text()
    for path in (tmp_path / "runs").rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"PRIVATE KEY" not in path.read_bytes(), path


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    from harness.local.disk import Folder

    file = tmp_path / "node" / "data.secrets" / "member.key"
    Folder(tmp_path / "node").keep_secret(str(file), b"k")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.read_bytes() == b"k"


def test_a_host_keeps_them_the_same_way(tmp_path: Path) -> None:
    """What is sent to a host goes as text, and lies there as it was."""
    from harness.ssh.agent.disks import Disks

    class Means:
        kind, token = "group", "t"

        def remove_at_end(self, place: str) -> None:
            assert place.startswith(str(tmp_path))

    disks = Disks(Means(), str(tmp_path))  # type: ignore[arg-type]
    data = disks.add("etcd1")
    file = Path(f"{data}.secrets", "member.key")
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    arguments = {"path": str(file), "data": base64.b64encode(b"k").decode()}
    disks.do("etcd1", "keep_secret", arguments, lambda _, error: answers.put(error))
    assert answers.get(timeout=30) == ""
    assert file.read_bytes() == b"k"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
