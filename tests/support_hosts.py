"""Real sshd hosts for tests: each in its own network, pid and mount namespaces, inside a sandbox.

They are nodes of a local lab whose first process is no server but a whole host: `unshare` and then
sshd as an administrator would run it, with host keys made for this one test.  The controller, in
the hub of the sandbox, reaches them at their addresses; nothing touches the machine's own network.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from harness import procfs
from harness.local.lab import Lab, LocalNode
from harness.ssh.inventory import Host, Inventory, read
from tests.live import until

ROOT = Path("/dev/shm/hosts")
_CONFIG = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {root}/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
"""


def missing() -> str | None:
    """Return what this machine lacks for such hosts, None when it lacks nothing."""
    if os.geteuid() != 0:
        return "hosts with sshd need root"
    for program, package in (("sshd", "openssh-server"), ("nft", "nftables")):
        if program_path(program) is None:
            return f"{program} is missing (package {package})"
    return None


def program_path(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


needs_sshd = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@dataclass
class Hosts:
    """The hosts `h1`.. and the file that describes them."""

    lab: Lab
    path: Path

    @property
    def inventory(self) -> Inventory:
        return read(self.path)

    def host(self, name: str) -> Host:
        return next(host for host in self.inventory.hosts if host.name == name)

    def place(self, name: str) -> LocalNode:
        return self.lab[name]

    def write(self, **changes: Mapping[str, object]) -> None:
        """Change what the inventory says of some hosts; None takes an entry away."""
        value = yaml.safe_load(self.path.read_text())
        value["hosts"] = [
            {k: v for k, v in (host | dict(changes.get(host["name"], {}))).items() if v is not None}
            for host in value["hosts"]
        ]
        self.path.write_text(yaml.safe_dump(value))

    def add(self, host: Mapping[str, object]) -> None:
        """Add a host to the inventory."""
        value = yaml.safe_load(self.path.read_text())
        value["hosts"].append(dict(host))
        self.path.write_text(yaml.safe_dump(value))

    def nft(self, name: str, *words: str) -> str:
        """Ask a host's nft, from outside."""
        return self.ask(name, "nft", *words)

    def ask(self, name: str, program: str, *words: str) -> str:
        """Return what a program says of a host's network."""
        path = program_path(program)
        assert path is not None
        with self.place(name).inside():
            done = subprocess.run([path, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def queues(self, name: str) -> str:
        """Return which queues of packets are read on a host."""
        with self.place(name).inside():
            return Path("/proc/thread-self/net/netfilter/nfnetlink_queue").read_text()


def make_key(path: Path, kind: str = "ed25519") -> str:
    """Make a key pair and return the public one."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return path.with_name(f"{path.name}.pub").read_text().strip()


@contextmanager
def hosts(count: int = 3, sudoers: Sequence[str] = ()) -> Iterator[Hosts]:
    """Start hosts; inside of a sandbox.  They go with it.

    With `sudoers` an ordinary user `winkle` may log in as well, and to each host belongs one text
    of what sudo allows.
    """
    names = [f"h{i + 1}" for i in range(count)]
    ROOT.mkdir()
    lab = Lab(names, ROOT / "lab")
    make_key(ROOT / "user_key")
    records = []
    for name in names:
        folder = ROOT / name
        folder.mkdir()
        if sudoers:
            (folder / "etc").mkdir()
            users = Path("/etc/passwd").read_text() + "winkle:*:4242:4242::/:/bin/sh\n"
            (folder / "etc" / "passwd").write_text(users)
            (folder / "etc" / "sudoers").write_text(sudoers[names.index(name)])
            (folder / "etc" / "sudoers").chmod(0o440)
        record = {"name": name, "address": lab[name].address, "python": sys.executable}
        records.append(record | {"host_key": make_key(folder / "host_key")})
        boot(lab[name], folder)
    path = ROOT / "hosts.yaml"
    defaults = {"user": "root", "key": "user_key", "agent_python": sys.executable}
    path.write_text(yaml.safe_dump({"defaults": defaults, "hosts": records}))
    for name in names:
        until(lambda node=lab[name]: answers(node), f"sshd of {name}")  # type: ignore[misc]
    yield Hosts(lab, path)


def boot(place: LocalNode, folder: Path) -> None:
    """Start a host: its first process is sshd, its /proc and /run are its own."""
    sshd = program_path("sshd")
    assert sshd is not None
    config = folder / "sshd_config"
    config.write_text(_CONFIG.format(address=place.address, folder=folder, root=ROOT))
    here = Path(__file__).resolve().parent
    script = [sys.executable, "-S", str(here / "sshd_host.py"), sshd, str(config)]
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    env = {"PYTHONPATH": str(here.parent)}
    place.spawn([*unshare, *script], log=folder / "log", env=env)


def answers(place: LocalNode) -> bool:
    try:
        socket.create_connection((place.address, 22), timeout=1.0).close()
    except OSError:
        return False
    return True


def agents(place: LocalNode) -> list[int]:
    """Return all processes of a host but sshd's, the oldest first: the guard, then the agent."""
    found = []
    for process in sorted(place.processes(), key=lambda process: (process.start, process.pid)):
        line = procfs.read(f"/proc/{process.pid}/cmdline")
        if line and b"sshd" not in line and not line.startswith(b"unshare"):
            found.append(process.pid)
    return found
