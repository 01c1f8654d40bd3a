"""Sockets from other nodes' networks: a holder makes them, and hands them out at its door.

The door is a Unix socket in a small volume that all holders of a run share.  What is handed out
belongs to the network of the holder that made it, whoever uses it.
"""

import asyncio
import contextlib
import socket
from pathlib import Path

DOORS = Path("/winkle-doors")
_HANDED_S = 5.0


class Door:
    """The door of a holder: whoever knocks is handed a stream socket."""

    def __init__(self, name: str) -> None:
        """Open it.  Raises OSError."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(DOORS / name))
        self._listener.listen()
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener, self._open)

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # nobody stands there any more
            guest, _ = self._listener.accept()
            with guest, socket.socket() as made:
                socket.send_fds(guest, [b"."], [made.fileno()])


async def from_door(name: str) -> socket.socket:
    """Return a stream socket in the network of another holder.  Raises OSError."""
    return await asyncio.to_thread(_knock, name)


def _knock(name: str) -> socket.socket:
    with socket.socket(socket.AF_UNIX) as guest:
        guest.settimeout(_HANDED_S)
        guest.connect(str(DOORS / name))
        _, handed, _, _ = socket.recv_fds(guest, 1, 1)
    if not handed:
        raise ConnectionResetError(f"the door of {name} was shut")
    return socket.socket(fileno=handed[0])
