"""What can happen to a message between a worker and a server, as data.

A message is what a worker sends at once over one connection; nothing is known of the protocol.
After the trick its connection is not what it was: bytes are missing, so it stays silent, or is
gone, and a client that wants to go on must connect again.
"""

import re
from dataclasses import dataclass
from typing import Literal

Part = Literal["lock", "store"]
What = Literal["lose-reply", "lose-request", "reset-after-delivery", "half-open", "slow-close"]


@dataclass(frozen=True)
class Trick:
    """What is to happen to the next `count` messages in which `match` is found (None: to any).

    - `lose-reply`: the request is delivered; of the reply and all after it nothing comes back.
    - `lose-request`: the request and all after it never arrive.
    - `reset-after-delivery`: the request is delivered; instead of a reply comes a reset.
    - `half-open`: the request never arrives and the server sees the connection end; the worker's
      end stays open and silent.
    - `slow-close`: the reply comes, then the worker sees the connection end; the server learns of
      it only when the trick is over.
    """

    what: What
    part: Part
    match: re.Pattern[bytes] | None = None
    count: int = 1


@dataclass(frozen=True)
class Hit:
    """One message to which it happened, as the kernel counts the bytes on both connections.

    `delivered` bytes of the request were acknowledged by the server's machine, `answered` bytes
    came back from it, and `returned` bytes were acknowledged by the worker's.  An end is open while
    its connection is established: `worker_open`, `server_open`.  `reset`: the worker was sent one.
    """

    worker: str
    server: str
    delivered: int
    answered: int
    returned: int
    worker_open: bool
    server_open: bool
    reset: bool
