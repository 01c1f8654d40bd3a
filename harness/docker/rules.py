"""The rules that stop packets, in the network namespace of the process that makes them.

Silent cuts drop packets on their way in, at the receiver: the sender notices nothing, old
connections and new ones alike.  A cut that tells refuses packets on their way out, at the sender.
All of it is one table of our own, so nothing of the engine's rules (name resolution is one) is
touched, and removing the table undoes everything at once.
"""

import contextlib
import socket
from collections.abc import Sequence

from harness.local import netfilter as nft
from harness.local.netlink import Message

_IP = 2
_TABLE = "winkle"
_INPUT, _OUTPUT = 1, 3
_SILENT, _TOLD = "silent", "told"


class Rules:
    """The table of this network namespace; needs NET_ADMIN."""

    def __init__(self) -> None:
        self._netfilter = nft.Netfilter()
        self._now: dict[str, frozenset[bytes]] | None = None
        self._tells = False

    def prepare(self) -> None:
        """Make the table, with nothing cut.  Raises OSError where the kernel cannot."""
        if self._now is not None:
            return
        self._remove_table()  # of a sidecar that was killed
        self._netfilter.commit(
            [
                nft.table(_IP, _TABLE),
                nft.address_set(_IP, _TABLE, _SILENT),
                nft.address_set(_IP, _TABLE, _TOLD),
                nft.chain(_IP, _TABLE, "in", _INPUT),
                nft.chain(_IP, _TABLE, "out", _OUTPUT),
                nft.rule(_IP, _TABLE, "in", *nft.source_in(_SILENT), nft.counted(), nft.drop()),
            ]
        )
        self._now = {_SILENT: frozenset(), _TOLD: frozenset()}
        if self._tells:
            self._add_refusal()

    def prepare_refusal(self) -> None:
        """Add the rules that tell.  Raises OSError where the kernel cannot refuse."""
        self.prepare()
        if not self._tells:
            self._add_refusal()
            self._tells = True

    def _add_refusal(self) -> None:
        told = nft.destination_in(_TOLD)
        self._netfilter.commit(
            [
                nft.rule(
                    *(_IP, _TABLE, "out"),
                    *(*told, *nft.transport(nft.TCP), nft.counted()),
                    nft.refuse(with_reset=True),
                ),
                nft.rule(*(_IP, _TABLE, "out"), *told, nft.counted(), nft.refuse(with_reset=False)),
            ]
        )

    def cut(self, silent: Sequence[str], told: Sequence[str]) -> None:
        """Drop what comes from `silent`, refuse what goes to `told`; nothing else.  One change."""
        self.prepare()
        assert self._now is not None
        wanted = {
            _SILENT: frozenset(map(socket.inet_aton, silent)),
            _TOLD: frozenset(map(socket.inet_aton, told)),
        }
        messages: list[Message] = []
        for name, keys in wanted.items():
            messages += nft.delete_elements(_IP, _TABLE, name, self._now[name] - keys)
            messages += nft.add_elements(_IP, _TABLE, name, keys - self._now[name])
        if messages:
            self._netfilter.commit(messages)
        self._now = wanted

    def stopped_packets(self) -> int:
        """Return how many packets were stopped, as counted by the rules."""
        if self._now is None:
            return 0
        return sum(self._netfilter.counted_packets(_IP, _TABLE, chain) for chain in ("in", "out"))

    def remove(self) -> None:
        """Remove the table, if there is one; whatever comes."""
        if self._now is not None:
            self._now = None
            self._remove_table()

    def _remove_table(self) -> None:
        with contextlib.suppress(OSError):
            self._netfilter.commit([nft.no_table(_IP, _TABLE)])
