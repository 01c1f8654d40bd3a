"""The data folders of the nodes on this host.

They lie in memory, below a mount that is the agent's own and goes with it; or, where the user names
a folder of the host, below that, and are removed at the end.  Only those in memory have a size that
can be taken away.  Orders may take long, a copy of a large folder for one, so they are carried out
beside the heartbeat, one after the other.
"""

import base64
import queue
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.local import namespaces as ns
from harness.local.disk import Folder, OwnDisk
from harness.ssh.agent.chain import Means

_SHM = "/dev/shm"
_ON_FOLDERS = (
    "files",
    "read",
    "change",
    "keep_secret",
    "cut",
    "keep",
    "put_back",
    "drop",
    "digest",
)
_ON_DISKS = ("fill", "forbid_writes", "make_whole", "free_bytes", "try_to_write")


class Disks:
    """A folder, or a disk, for each node."""

    def __init__(self, means: Means, data: str | None) -> None:
        """Prepare the place for all.  Raises OSError."""
        self._disks: dict[str, Folder] = {}
        self._orders: queue.Queue[Callable[[], None]] = queue.Queue()
        self.own = means.kind == "namespace" and data is None
        if self.own:
            ns.mount("tmpfs", _SHM, "tmpfs", ns.MS_NOSUID | ns.MS_NODEV, "mode=1777")
            self._root = Path(_SHM, "winkle")
        else:
            place = Path(data or tempfile.gettempdir(), f"winkle-{means.token}")
            place.mkdir(mode=0o700)
            means.remove_at_end(str(place))
            self._root = place
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, node: str) -> str:
        """Make the folder of a node and return its path.  Raises OSError."""
        kind = OwnDisk if self.own else Folder
        disk = self._disks[node] = kind(self._root / node)
        return str(disk.data)

    def do(
        self, node: str, method: str, arguments: dict[str, Any], answer: Callable[[Any, str], None]
    ) -> None:
        """Carry out an order when those before it are done; `answer(value, error)` is told."""
        if method not in (*_ON_FOLDERS, *_ON_DISKS):
            answer(None, f"no such order: {method}")
            return
        self._orders.put(lambda: self._carry_out(node, method, arguments, answer))

    def _work(self) -> None:
        while True:
            self._orders.get()()

    def _carry_out(
        self, node: str, method: str, arguments: dict[str, Any], answer: Callable[[Any, str], None]
    ) -> None:
        if "data" in arguments:
            arguments["data"] = base64.b64decode(arguments["data"])
        try:
            value = getattr(self._disks[node], method)(**arguments)
        except OSError as error:
            answer(None, error_text(error))
        except Exception as error:  # noqa: BLE001 - a thread that died would answer nobody again
            answer(None, f"0 {type(error).__name__}: {error}")
        else:
            answer(base64.b64encode(value).decode() if isinstance(value, bytes) else value, "")


def error_text(error: OSError) -> str:
    """Return an error as an answer has it: its number, and what it says of what."""
    what = f": {error.filename}" if error.filename else ""
    return f"{error.errno or 0} {error.strerror or error}{what}"
