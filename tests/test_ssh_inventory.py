"""The inventory: every mistake at once with its place, and which node lives where."""

from pathlib import Path

import pytest
import yaml

from harness.assemble import targets
from harness.errors import HarnessError, UsageError
from harness.runfile import from_values
from harness.servers import Parts
from harness.ssh.backend import build
from harness.ssh.inventory import Host, Inventory, assign, check_addresses, inventory_schema, read

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKmpM45P6FmVQDSgHBCC7cPbMKFd5MPAJ6EHYDDjm0dD"
ENVOY = "address: x, python: p, envoy: true"
GOOD = f"""
defaults: {{user: winkle, key: id, sudo: true}}
hosts:
  - name: a
    address: 192.0.2.1
    host_key: {KEY} root@a
    nodes: [etcd1, "w*"]
  - name: b
    address: 192.0.2.2
    port: 2222
    user: root
    key: /keys/b
    peer_address: 198.51.100.2
    python: /opt/winkle/bin/python
  - name: here
    local: true
    address: 192.0.2.9
    nodes: [r1]
"""


def test_defaults_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(GOOD)
    a, b, here = read(path).hosts
    assert (a.user, a.port, a.sudo, a.key) == ("winkle", 22, True, tmp_path / "id")
    assert (b.user, b.port, b.sudo, b.key) == ("root", 2222, True, Path("/keys/b"))
    assert (a.known_as, b.known_as) == ("192.0.2.1", "198.51.100.2")
    assert here.local


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: []", "hosts.yaml:1:1: found no host; allowed: at least one"),
        ("hosts:\n  - name: a", "hosts.yaml:2:5: hosts[0]: missing: address"),
        ("hosts:\n  - {name: a, adress: x}", 'unknown key "adress"; did you mean address?'),
        ("hosts:\n  - {name: a, address: x, port: 0}", "port: found 0; allowed: at least 1"),
        ("hosts:\n  - {name: a/b, address: x}", 'name: found "a/b"'),
        ("hosts:\n  - {name: a, address: x, host_key: abc}", 'host_key: found "abc"; allowed: a'),
        ("hosts:\n  - {name: a, address: x, host_key: ssh-rsa AAAA}", "host_key: found"),
        ("hosts:\n  - {name: a, address: x}\n  - {name: a, address: y}", "two hosts are named a"),
        ("defaults: {usr: x}\nhosts:\n  - {name: a, address: x}", "did you mean user?"),
        ("hosts:\n  - {name: a, address: x}\n  - {name: b, local: true}", "b: missing: address"),
        ("hosts:\n  - {name: a, address: x, envoy: true}", "missing: python, a Python 3.11"),
        (
            "defaults: {envoy: true}\nhosts:\n  - {name: a, address: x}",
            'unknown key "envoy"; allowed',
        ),
        (
            "hosts:" + "".join(f"\n  - {{name: {n}, {ENVOY}}}" for n in "ab"),
            "a, b: found several envoys; allowed: one",
        ),
        ("", "hosts: missing"),
        ("[1]", "allowed: a mapping"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read(path)
    assert said in str(raised.value), raised.value


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts:\n  - {name: a, address: x, port: no}\n  - {name: b, address: y, a: 1}")
    with pytest.raises(UsageError) as raised:
        read(path)
    first, second = str(raised.value).splitlines()
    assert first.startswith(f"{path}:2:33: hosts[0].port: ")
    assert second.startswith(f"{path}:3:27: hosts[1].a: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read(tmp_path / "hosts.yaml")


def inventory(**hosts: dict[str, object]) -> Inventory:
    each = [{"name": name, "address": name, **record} for name, record in hosts.items()]
    return Inventory.model_validate({"hosts": each})


def placed(servers: list[str], workers: list[str], hosts: Inventory) -> dict[str, str]:
    return {name: host.name for name, host in assign(servers, workers, hosts).items()}


PY: dict[str, object] = {"python": "python3"}


def test_who_lives_where() -> None:
    asked = inventory(a={"nodes": ["s2"]}, b={"nodes": ["w*", "s1"], **PY})
    assert placed(["s1", "s2"], ["w1"], asked) == {"s1": "b", "s2": "a", "w1": "b"}
    spread = inventory(a=PY, b=PY, c={})
    found = placed(["s1", "s2", "s3"], ["w1", "w2", "w3"], spread)
    assert found == {"s1": "a", "s2": "b", "s3": "c", "w1": "a", "w2": "b", "w3": "a"}
    apart = inventory(a={}, here={"local": True, "nodes": ["w*", "r*"]})
    assert placed(["s1"], ["w1", "r1"], apart) == {"s1": "a", "w1": "here", "r1": "here"}


def test_workers_need_a_python() -> None:
    with pytest.raises(HarnessError, match="no host of the inventory has a `python` for w1, w2"):
        assign(["s1"], ["w1", "w2"], inventory(a={}))
    with pytest.raises(HarnessError, match="w1 on a"):
        assign(["s1"], ["w1"], inventory(a={"nodes": ["w1"]}, b=PY))


def test_servers_of_one_port_need_hosts_of_their_own(tmp_path: Path) -> None:
    """It is told before anything is connected to: nobody listens there."""
    path = tmp_path / "hosts.yaml"
    host = {"name": "a", "address": "127.0.0.1", "port": 1, "host_key": KEY, "python": "p"}
    path.write_text(yaml.safe_dump({"hosts": [host]}))
    asked = {"lock": "etcd", "store": "atlasmart", "backend": "ssh", "inventory": str(path)}
    spec = from_values(asked)
    names = [server.name for server in Parts(*targets(spec)).servers]
    with pytest.raises(HarnessError, match="etcd1 and etcd2 would both listen at port 2379 of hos"):
        build([*names, *spec.worker_names()], spec, tmp_path)


def test_a_host_needs_an_address_that_packets_have() -> None:
    named = assign(["s1"], [], inventory(db1={}))
    with pytest.raises(HarnessError, match="db1 is known to the others as db1: give it a `peer_ad"):
        check_addresses(named)
    check_addresses(assign(["s1"], [], inventory(db1={"peer_address": "2001:db8::1"})))


def test_the_schema_names_every_key() -> None:
    named = inventory_schema()["$defs"]["Host"]["properties"]
    assert named.keys() == Host.model_fields.keys()
    assert all("description" in entry for entry in named.values())


def test_a_run_with_a_wrong_inventory_is_refused_before_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts:\n  - name: a")
    flags = {"lock": "atlasmart", "store": "atlasmart", "backend": "ssh", "inventory": str(path)}
    with pytest.raises(UsageError, match=r"hosts.yaml:2:5: hosts\[0\]: missing: address"):
        from_values(flags)
    path.write_text("hosts:\n  - {name: a, address: x}")
    assert from_values(flags).inventory == str(path)
