"""What one needs to reach an etcd cluster: addresses, a user, and the means of TLS.

A client speaks to several members over one gRPC channel, and a channel has one name by which it
knows whoever answers.  So all members must have certificates that bear one common name; probes ask
for the same one.
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class User:
    """A user of etcd with the password."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Tls:
    """Whom to trust, by which name, and what to show: all in PEM.

    `certificate` and `key` are empty where servers ask for no certificate.
    """

    name: str
    authorities: str = field(repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, name: str, known: Mapping[str, str]) -> "Tls":
        """Return what the secrets of a run say."""
        return cls(name, known["authorities"], known["certificate"], known["key"])

    @cached_property
    def context(self) -> ssl.SSLContext:
        """For connections of Python's own; it verifies.

        Raises ssl.SSLError or ValueError for what is no PEM.
        """
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.load_verify_locations(cadata=self.authorities)  # never the machine's own authorities
        if self.certificate:
            # Python's ssl reads a key from a file only; this one lies in memory and has no name.
            file = os.memfd_create("certificate", os.MFD_CLOEXEC)
            try:
                os.write(file, f"{self.key}\n{self.certificate}".encode())
                made.load_cert_chain(f"/proc/self/fd/{file}")
            finally:
                os.close(file)
        return made


@dataclass(frozen=True)
class Access:
    """How a client reaches the cluster: whom it asks first, how long, as whom, and how safely."""

    endpoints: Sequence[str]
    timeout_s: float
    user: User | None = None
    tls: Tls | None = None

    def channel(self, options: Sequence[tuple[str, Any]]) -> Any:
        """Return a gRPC channel to the members (imports gRPC)."""
        import grpc

        where = f"ipv4:{','.join(self.endpoints)}"
        if self.tls is None:
            return grpc.insecure_channel(where, options=options)
        tls = self.tls
        credentials = grpc.ssl_channel_credentials(
            tls.authorities.encode(), tls.key.encode() or None, tls.certificate.encode() or None
        )
        named = (*options, ("grpc.ssl_target_name_override", tls.name))
        return grpc.secure_channel(where, credentials, options=named)
