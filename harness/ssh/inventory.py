"""The inventory: which hosts there are, and how each proves that it is the one.

A YAML file, written by whoever may use the hosts:

    defaults: {user: root, key: ~/.ssh/winkle_ed25519}
    hosts:
      - name: a
        address: 192.0.2.11
        host_key: ssh-ed25519 AAAA...
        nodes: [etcd1, w1]
      - name: here
        local: true
        nodes: ["r*"]

The host key comes out of band: from the machine's console, from whoever installed it, not from the
network that the run is about to cut.
"""

import base64
import binascii
import fnmatch
import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.errors import HarnessError, UsageError
from harness.mistakes import Mistake, from_pydantic, show
from harness.mistakes import Path as Where
from harness.yaml_places import read_yaml, report

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"


class Common(BaseModel):
    """What may be said once for all hosts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: int = Field(default=22, ge=1, le=65535, description="the port of sshd")
    user: str = Field(
        default="root", description="the user to log in as; cuts and bad links need root"
    )
    key: Path | None = Field(
        default=None,
        description="file of the private key, without a passphrase; relative to this file",
    )
    sudo: bool = Field(default=False, description="become root by `sudo -n`, without a password")
    agent_python: str = Field(default="python3", description="a Python 3.8 or newer, for the agent")
    python: str | None = Field(
        default=None,
        description="a Python 3.11 or newer with vanwinkle, for workers; none: no workers",
    )
    data: Path | None = Field(
        default=None,
        description="folder on the host for the servers' data; none: in memory, with disk faults",
    )


class Host(Common):
    """One machine."""

    name: str = Field(pattern=_NAME, description="how the run calls it")
    local: bool = Field(
        default=False, description="the controller's own machine, without SSH and never cut off"
    )
    address: str = Field(default="127.0.0.1", description="where the controller connects")
    peer_address: str | None = Field(
        default=None, description="what the other hosts know it by, when that is not `address`"
    )
    host_key: str | None = Field(default=None, description="its public key: a type and base64 text")
    envoy: bool = Field(
        default=False,
        description="servers are asked from here whether they are ready and who leads, instead of"
        " from the controller, which then needs no way to them; needs `python`",
    )
    nodes: tuple[str, ...] = Field(
        default=(), description="the servers and workers that live there; `*` stands for anything"
    )

    @field_validator("host_key")
    @classmethod
    def _a_key(cls, value: str | None) -> str | None:
        if value is not None:
            key_bytes(value)
        return value

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if not self.local and "address" not in self.model_fields_set:
            raise ValueError("missing: address; or `local: true` for this machine")
        if self.envoy and self.python is None:
            raise ValueError(
                "missing: python, a Python 3.11 or newer with vanwinkle, for the envoy"
            )
        return self

    @property
    def known_as(self) -> str:
        """The address that nodes on it have."""
        return self.peer_address or self.address


class Inventory(BaseModel):
    """All hosts of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: Common = Field(
        default_factory=lambda: Common.model_validate({}),
        description="what hosts have that do not say otherwise",
    )
    hosts: tuple[Host, ...] = Field(description="at least one")

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        defaults, hosts = value.get("defaults"), value.get("hosts")
        if isinstance(defaults, dict) and isinstance(hosts, list):
            known = {key: defaults[key] for key in Common.model_fields if key in defaults}
            merged = [{**known, **h} if isinstance(h, dict) else h for h in hosts]
            return {**value, "hosts": merged}
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.hosts:
            raise ValueError("found no host; allowed: at least one")
        names = [host.name for host in self.hosts]
        for host in self.hosts:
            lost = host.local and "address" not in host.model_fields_set
            if lost and not all(other.local for other in self.hosts):
                raise ValueError(
                    f"{host.name}: missing: address, by which the other hosts know this machine"
                )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two hosts are named {', '.join(twice)}")
        if len(envoys := [host.name for host in self.hosts if host.envoy]) > 1:
            raise ValueError(f"{', '.join(envoys)}: found several envoys; allowed: one")
        return self

    @property
    def envoy(self) -> Host | None:
        """The host from which servers are asked, None when the controller asks them."""
        return next((host for host in self.hosts if host.envoy), None)


def key_bytes(text: str) -> tuple[str, bytes]:
    """Return type and bytes of a public key as `known_hosts` and `.pub` files write it.

    Raises ValueError.
    """
    words = text.split()
    try:
        data = base64.b64decode(words[1], validate=True)
        kind = data[4 : 4 + int.from_bytes(data[:4], "big")].decode("ascii")
    except (IndexError, binascii.Error, UnicodeDecodeError):
        kind, data = "", b""
    if not kind or kind != words[0]:
        raise ValueError(
            f"found {show(text)}; allowed: a type and base64 text, as in the host's"
            " /etc/ssh/ssh_host_ed25519_key.pub"
        )
    return kind, data


def read(path: Path) -> Inventory:
    """Read an inventory; key files are made relative to it.  Raises UsageError, every mistake."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    document = read_yaml(text, str(path))
    mistakes: list[Mistake] = []
    try:
        inventory = Inventory.model_validate(document.value if document.value is not None else {})
    except ValidationError as error:
        mistakes = from_pydantic(error, _known_keys)
    if lines := report(document, mistakes):
        raise UsageError("\n".join(lines))
    hosts = tuple(
        host.model_copy(update={"key": _beside(path, host.key)}) for host in inventory.hosts
    )
    return inventory.model_copy(update={"hosts": hosts})


def _beside(path: Path, key: Path | None) -> Path | None:
    return None if key is None else path.resolve().parent / key.expanduser()


def _known_keys(path: Where) -> Sequence[str]:
    if not path:
        return tuple(Inventory.model_fields)
    return tuple((Common if path[0] == "defaults" else Host).model_fields)


def inventory_schema() -> dict[str, Any]:
    """Return the JSON schema of inventories."""
    return Inventory.model_json_schema()


def assign(servers: Sequence[str], workers: Sequence[str], inventory: Inventory) -> dict[str, Host]:
    """Return the host of each node.  Raises HarnessError that names all nodes without one.

    What no host asks for by name is spread: servers over hosts that ask for nothing, one each and
    then round again; workers over the hosts that have a Python for them.
    """
    placed = {name: host for name in (*servers, *workers) if (host := _asked(name, inventory))}
    free = [host for host in inventory.hosts if not host.nodes and not host.local]
    fit = [host for host in inventory.hosts if host.python or host.local]
    fit = [host for host in fit if not host.nodes] or fit
    for names, hosts in ((servers, free or list(inventory.hosts)), (workers, fit)):
        left = [name for name in names if name not in placed]
        if left and not hosts:
            raise HarnessError(f"no host of the inventory has a `python` for {', '.join(left)}")
        placed |= {name: hosts[i % len(hosts)] for i, name in enumerate(left)}
    deaf = sorted(
        name for name in workers if placed[name].python is None and not placed[name].local
    )
    if deaf:
        where = ", ".join(f"{name} on {placed[name].name}" for name in deaf)
        raise HarnessError(f"workers need a `python` with vanwinkle on their host: {where}")
    return placed


def check_addresses(placed: Mapping[str, Host]) -> None:
    """Refuse a host that the others know by a name only.  Raises HarnessError.

    Rules and bad links concern packets, and these have no names.
    """
    for host in placed.values():
        try:
            ipaddress.ip_address(host.known_as)
        except ValueError:
            raise HarnessError(
                f"host {host.name} is known to the others as {host.known_as}: give it a"
                " `peer_address`, the IP address that it has for them"
            ) from None


def check_ports(placed: Mapping[str, Host], ports: Mapping[str, int]) -> None:
    """Refuse servers that would listen at one port of one host.  Raises HarnessError."""
    taken: dict[tuple[str, int], str] = {}
    for name, port in ports.items():
        host = placed[name].name
        other = taken.setdefault((host, port), name)
        if other != name:
            raise HarnessError(
                f"{other} and {name} would both listen at port {port} of host {host}: give each a"
                " host of its own, by `nodes` of the inventory"
            )


def _asked(name: str, inventory: Inventory) -> Host | None:
    for host in inventory.hosts:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in host.nodes):
            return host
    return None
