"""The network of a run: a bridge in the sandbox's own namespace, and one namespace a node.

The sandbox's namespace (the hub) has an address on the bridge, so the harness reaches every node,
cut off or not.  No route leads out: nothing that runs here can reach the machine's network.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import procfs
from harness.local.child import Child
from harness.local.disk import OwnDisk
from harness.local.namespaces import Inside, new_network_namespace
from harness.local.orders import Orders
from harness.node import ProcessId, Threads
from harness.vdso.clocks import VdsoClocks

_NETWORK = "10.77.0."
_FIRST_NODE = 11
NODES_MAX = 200


class LocalNode(OwnDisk):
    """A network namespace with an address and a disk; its processes are all that live in it."""

    def __init__(self, name: str, address: str, namespace: int, root: Path) -> None:
        super().__init__(root)
        self.name = name
        self.address = address
        self.port = f"p{address.rsplit('.', 1)[1]}"
        self._namespace = namespace
        self._inode = os.fstat(namespace).st_ino
        self._orders = Orders(self.processes)
        self.clocks = VdsoClocks(self.processes, self._orders)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        pipes: bool = False,
        cwd: Path | None = None,
    ) -> Child:
        """Start a process here, in a session of its own.  Raises OSError."""
        with log.open("ab") as file, Inside(self._namespace):
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else file,
                stderr=file,
                start_new_session=True,
                env=None if env is None else {**os.environ, **env},
                cwd=cwd,
            )
        # The kernel tells of the end through a pidfd; the Popen object must not complain that
        # nobody waited for it.
        process.returncode = 0
        if process.stdin is None or process.stdout is None:
            return Child(process.pid)
        return Child(process.pid, _detach(process.stdin), _detach(process.stdout))

    def processes(self) -> list[ProcessId]:
        """All processes that live here now."""
        return procfs.in_network_namespace(self._inode)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that lives here."""
        self._orders.signal(number)

    def kill(self, *, kindly: bool = False) -> None:
        """Order every process to end."""
        self.signal(signal.SIGTERM if kindly else signal.SIGKILL)

    def stop(self, owner: str) -> None:
        """Order every process to stop."""
        self._orders.stop(owner)

    def resume(self, owner: str) -> None:
        """Order every process to go on, unless another owner still stops the node."""
        self._orders.resume(owner)

    def held(self) -> bool:
        """Whether any owner stops the node now."""
        return self._orders.stopped()

    def threads(self) -> Threads:
        """Look at the kernel's state of every thread that lives here."""
        states = [
            state
            for process in self.processes()
            for state in procfs.thread_states(process.pid).values()
        ]
        return Threads(len(states), states.count(procfs.STOPPED))

    def inside(self) -> Inside:
        """Return what takes the calling thread into this node's network, for a `with` block."""
        return Inside(self._namespace)

    def sysctl(self, name: str, value: str) -> bool:
        """Set a setting of this namespace; return whether the kernel knows and allows it."""
        with Inside(self._namespace):
            try:
                Path("/proc/sys", *name.split(".")).write_text(value)
            except OSError:
                return False
        return True


def _detach(stream: Any) -> int:
    fd = os.dup(stream.fileno())
    stream.close()
    return fd


class Lab:
    """All nodes of one run.  Built before any event loop runs: pyroute2 brings its own."""

    def __init__(self, names: Sequence[str], data: Path) -> None:
        from pyroute2 import IPRoute

        if len(names) > NODES_MAX:
            raise ValueError(f"{len(names)} nodes: at most {NODES_MAX} fit into one sandbox")
        self.nodes: dict[str, LocalNode] = {}
        with IPRoute() as links:
            _up(links, "lo")
            links.link("add", ifname="br0", kind="bridge")
            bridge = _index(links, "br0")
            links.link("set", index=bridge, state="up")
            links.addr("add", index=bridge, address=_NETWORK + "1", prefixlen=24)
            for i, name in enumerate(names):
                self.nodes[name] = _add_node(links, bridge, name, _FIRST_NODE + i, data / name)

    def __getitem__(self, name: str) -> LocalNode:
        return self.nodes[name]


def _add_node(links: Any, bridge: int, name: str, host: int, root: Path) -> LocalNode:
    from pyroute2 import IPRoute

    namespace = new_network_namespace()
    node = LocalNode(name, f"{_NETWORK}{host}", namespace, root)
    peer = {"ifname": "eth0", "net_ns_fd": namespace}
    links.link("add", ifname=node.port, kind="veth", peer=peer)
    links.link("set", index=_index(links, node.port), master=bridge, state="up")
    with Inside(namespace):
        inner = IPRoute()
    with inner:
        _up(inner, "lo")
        eth = _index(inner, "eth0")
        inner.addr("add", index=eth, address=node.address, prefixlen=24)
        inner.link("set", index=eth, state="up")
    return node


def _index(links: Any, name: str) -> int:
    return int(links.link_lookup(ifname=name)[0])


def _up(links: Any, name: str) -> None:
    links.link("set", index=_index(links, name), state="up")
