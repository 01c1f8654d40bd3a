"""What really gets through between nodes: datagrams, old connections, and new ones.

A rule that is in the kernel proves nothing: it may stand behind another that accepts, or let go
what was connected before it came.  So every look sends a datagram, a byte on a connection that
stood before any cut, and a request for a new connection, and waits for what arrives.  That nothing
arrives is believed when a later datagram from the hub, which no cut concerns, has reached the same
node; a machine that was stalled for a moment is not mistaken for a cut.

A connection that was used during a cut comes back only with TCP's next retransmission.  Each link
therefore keeps connections in reserve, silent until they are needed.
"""

import contextlib
import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from harness.local.lab import LocalNode
from harness.local.post import Post, Watch, ready_to_use
from harness.site import Pair, Passage

Link = frozenset[str]
_Try = tuple[str, Pair]
LINKS_MAX = 32  # that are tried with connections; all others by datagrams alone
_RESERVE = 2
_SPARE_MAX = 6
_UNACKED_AT = 24  # in TCP_INFO
_CONNECT_S = 0.01
_MEANT_S = 0.5
_DATAGRAM = struct.Struct("=QI")


@dataclass
class Connection:
    """Both ends of a connection by node, with the bytes that went in and came out, by sender."""

    ends: dict[str, socket.socket]
    sent: Counter[str] = field(default_factory=Counter)
    arrived: Counter[str] = field(default_factory=Counter)
    reset_at: str | None = None

    def send(self, node: str) -> None:
        """Send one byte from a node."""
        try:
            self.sent[node] += self.ends[node].send(b".")
        except BlockingIOError:
            return
        except OSError:
            self.reset_at = node

    def receive(self, node: str) -> None:
        """Take what arrived at a node."""
        (other,) = self.ends.keys() - {node}
        try:
            self.arrived[other] += len(self.ends[node].recv(4096))
        except BlockingIOError:
            return
        except OSError:
            self.reset_at = node

    def whole(self) -> bool:
        """Whether everything that was sent has arrived."""
        return self.reset_at is None and self.sent == self.arrived

    def quiet(self) -> bool:
        """Whether it is whole and, by the kernel, nothing waits to be sent again at either end."""
        return self.whole() and not any(_unacknowledged(end) for end in self.ends.values())

    def close(self) -> None:
        """Close both ends."""
        for end in self.ends.values():
            end.close()


def _unacknowledged(end: socket.socket) -> int:
    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED_AT + 4)
    return int(struct.unpack_from("=I", info, _UNACKED_AT)[0])


@dataclass
class Reserve:
    """The old connections of a link: one for the cut of now, and the others."""

    spare: list[Connection] = field(default_factory=list)
    during: Connection | None = None

    def lay_by(self) -> None:
        """The cut is over, or a new one begins: take in what has arrived since."""
        kept = self.spare + ([self.during] if self.during else [])
        self.during, self.spare = None, []
        for connection in kept:
            for node in connection.ends:
                connection.receive(node)
            if connection.reset_at is None:
                self.spare.append(connection)
            else:
                connection.close()
        while len(self.spare) > _SPARE_MAX:
            self.spare.pop(0).close()

    def usable(self) -> list[Connection]:
        """The connections that would carry a byte at once if the link lets it."""
        return [connection for connection in self.spare if connection.quiet()]

    def pick(self, *, cut: bool) -> Connection | None:
        """Return an old connection to try; while the link is cut, one and the same."""
        if not cut:
            self.lay_by()
        if self.during is not None:
            return self.during
        usable = self.usable()
        if not usable:
            return None
        chosen = usable[-1]
        chosen.sent.clear()
        chosen.arrived.clear()
        if cut:
            self.spare.remove(chosen)
            self.during = chosen
        return chosen


class Prober:
    """Sends between nodes; one look at a time."""

    def __init__(self, nodes: Mapping[str, LocalNode]) -> None:
        self._posts = {name: Post(node) for name, node in nodes.items()}
        self._hub = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._reserves: dict[Link, Reserve] = {}
        self._rounds = itertools.count(1)

    async def prepare(self, links: Iterable[Link]) -> None:
        """Open connections on links that are about to be cut, as far as something passes there."""
        opening: dict[tuple[str, int], tuple[Link, str, socket.socket]] = {}
        for link in list(links)[:LINKS_MAX]:
            reserve = self._reserves.setdefault(link, Reserve())
            reserve.lay_by()
            near, far = sorted(link)
            for stream in self._posts[near].streams(max(0, _RESERVE - len(reserve.usable()))):
                stream.connect_ex(self._posts[far].listen_address)
                opening[stream.getsockname()] = (link, near, stream)
        if not opening:
            return
        watch = Watch()
        for far in {max(link) for link, _, _ in opening.values()}:
            listener = self._posts[far].listener
            watch.on_read(listener, partial(self._accept, listener, far, opening))
        try:
            await watch.run(lambda: not opening, time.monotonic() + _CONNECT_S)
        finally:
            watch.close()
            for _, _, stream in opening.values():
                stream.close()

    def _accept(
        self,
        listener: socket.socket,
        far: str,
        opening: dict[tuple[str, int], tuple[Link, str, socket.socket]],
    ) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                end, peer = listener.accept()
                if peer not in opening:  # of a look that was given up
                    end.close()
                    continue
                link, near, stream = opening.pop(peer)
                ready_to_use(end)
                self._reserves[link].spare.append(Connection({near: stream, far: end}))

    async def look(
        self, pairs: Sequence[Pair], cut: Collection[Pair], wait_s: float
    ) -> dict[Pair, Passage]:
        """Send over each pair, wait as long as something is missing, and say what arrived.

        `cut` is what is meant to be cut now.  It decides which old connection is tried, and what
        an answer means: where only the way back is cut, TCP says nothing about the way there.
        """
        links = _spread(pairs)
        old = {
            pair: self._reserves.setdefault(frozenset(pair), Reserve()).pick(
                cut=pair in cut or pair[::-1] in cut
            )
            for pair in pairs
            if frozenset(pair) in links
        }
        look = _Look(self._posts, pairs, cut, next(self._rounds))
        try:
            look.send(old, self._hub)
            await look.wait(wait_s)
        finally:
            look.close()
        return {pair: look.passage(pair) for pair in pairs}


def _spread(pairs: Sequence[Pair]) -> set[Link]:
    """Return the links of pairs, at most LINKS_MAX, spread evenly."""
    links = list(dict.fromkeys(frozenset(pair) for pair in pairs))
    return {links[i * len(links) // LINKS_MAX] for i in range(LINKS_MAX)} if links else set()


class _Look:
    """One round of sending, and what came of it.

    A try is a name of what is sent and the pair that it goes over; `_missing` are those of which
    nothing arrived yet.
    """

    def __init__(
        self, posts: Mapping[str, Post], pairs: Sequence[Pair], cut: Collection[Pair], number: int
    ) -> None:
        self._posts = posts
        self._pairs = pairs
        self._cut = cut
        self._number = number
        self._watch = Watch()
        self._datagrams: list[_Try] = []
        self._tried: frozenset[Pair] = frozenset()
        self._old: dict[Pair, Connection] = {}
        self._asked: dict[Pair, socket.socket] = {}
        self._refused: set[Pair] = set()
        self._missing: set[_Try] = set()
        self._sent_s = 0.0

    def send(self, old: Mapping[Pair, Connection | None], hub: socket.socket) -> None:
        """Send over all pairs, with connections over those of `old`, then what no cut concerns."""
        receivers = sorted({far for _, far in self._pairs})
        for name in receivers:
            post = self._posts[name]
            self._watch.on_read(post.datagrams, partial(self._datagram, post))
            self._watch.on_read(post.listener, partial(_turn_away, post.listener))
        for pair in self._pairs:
            self._posts[pair[0]].send(self._stamp("datagram", pair), self._posts[pair[1]])
        self._tried = frozenset(old)
        for pair, connection in old.items():
            if connection is not None:
                self._byte_over(pair, connection)
        self._connect(old)
        for name in receivers:
            stamp = self._stamp("control", (name, name))
            hub.sendto(stamp, self._posts[name].datagram_address)

    def _stamp(self, what: str, pair: Pair) -> bytes:
        self._datagrams.append((what, pair))
        self._missing.add((what, pair))
        return _DATAGRAM.pack(self._number, len(self._datagrams) - 1)

    def _datagram(self, post: Post) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = post.datagrams.recv(64)
                if len(data) == _DATAGRAM.size:
                    number, i = _DATAGRAM.unpack(data)
                    if number == self._number:
                        self._missing.discard(self._datagrams[i])

    def _byte_over(self, pair: Pair, connection: Connection) -> None:
        self._old[pair] = connection
        self._missing.add(("old", pair))
        connection.send(pair[0])
        for node, end in connection.ends.items():
            self._watch.on_read(end, partial(self._byte, connection, node))

    def _byte(self, connection: Connection, node: str) -> None:
        connection.receive(node)
        for pair, other in self._old.items():
            # Through a cut not a single byte comes; without one, every byte.
            enough = 1 if pair in self._cut else connection.sent[pair[0]]
            if other is connection and connection.arrived[pair[0]] >= enough:
                self._missing.discard(("old", pair))
        if connection.reset_at is not None:
            for end in connection.ends.values():
                self._watch.off(end)

    def _connect(self, pairs: Iterable[Pair]) -> None:
        by_node: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_node.setdefault(pair[0], []).append(pair)
            self._missing.add(("new", pair))
        for near, mine in by_node.items():
            for pair, stream in zip(mine, self._posts[near].streams(len(mine)), strict=True):
                stream.connect_ex(self._posts[pair[1]].listen_address)
                self._asked[pair] = stream
                self._watch.on_write(stream, partial(self._answered, pair, stream))

    def _answered(self, pair: Pair, stream: socket.socket) -> None:
        self._watch.off(stream)
        del self._asked[pair]
        if stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._refused.add(pair)
        else:
            self._missing.discard(("new", pair))
        stream.close()

    async def wait(self, wait_s: float) -> None:
        """Wait for everything; then, longer, for what is meant to pass."""
        began = self._sent_s = time.monotonic()
        if not await self._watch.run(lambda: not self._missing, began + wait_s):
            meant = {(what, pair) for what, pair in self._missing if self._is_meant(what, pair)}
            await self._watch.run(lambda: not meant & self._missing, began + wait_s + _MEANT_S)

    def close(self) -> None:
        """Stop waiting."""
        self._watch.close()
        for stream in self._asked.values():
            stream.close()

    def _is_meant(self, what: str, pair: Pair) -> bool:
        return pair not in self._cut and (
            what in ("datagram", "control") or pair[::-1] not in self._cut
        )

    def passage(self, pair: Pair) -> Passage:
        """Return what is known of a pair."""
        datagram = ("datagram", pair) not in self._missing
        if pair not in self._cut and pair[::-1] in self._cut:
            return Passage(datagram=datagram, sent_s=self._sent_s)
        old = self._old.get(pair)
        return Passage(
            datagram=datagram,
            old=None if old is None else ("old", pair) not in self._missing,
            new=None if pair not in self._tried else ("new", pair) not in self._missing,
            refused=pair in self._refused or (old is not None and old.reset_at == pair[0]),
            sent_s=self._sent_s,
        )


def _turn_away(listener: socket.socket) -> None:
    """End the new connections that were asked for: that they stood is all that counts."""
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
