"""Certificates of one run: an authority, one certificate for each member, and one for clients.

The authority's key is forgotten as soon as it has signed.  Members know each other by address, and
clients know all of them by one name.  No certificate names a subject: etcd would take that for the
name of a user, and refuse its JSON gateway then.

They are good for two days before and after now, so that a clock fault of hours breaks leases and
not certificates.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness.target import Cluster, Secrets

GOOD_FOR = dt.timedelta(days=2)
AUTHORITY = "the authority of one run of vanwinkle"


def make(cluster: Cluster, name: str) -> Secrets:
    """Make all of them; members and clients must show theirs.  Files: ca.crt, member.crt and .key.

    `name` is that by which clients know every member.
    """
    authority = _Authority()
    files = {}
    for place in cluster.places:
        names: list[x509.GeneralName] = [x509.DNSName(name), x509.DNSName(place.name)]
        certificate, key = authority.sign([*names, _address(place.address)])
        files[place.name] = {
            "ca.crt": authority.pem,
            "member.crt": certificate,
            "member.key": key,
        }
    certificate, key = authority.sign([x509.DNSName("client")])
    known = {"authorities": authority.pem, "certificate": certificate, "key": key}
    return Secrets({word: text.decode() for word, text in known.items()}, files)


def _address(address: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(address))


class _Authority:
    """A key that signs."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY)])
        may = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        built = (
            self._begun(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(may, critical=True)
        )
        self.pem = built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def sign(self, names: Sequence[x509.GeneralName]) -> tuple[bytes, bytes]:
        """Return a new certificate with its key, for either end of a connection."""
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        built = (
            self._begun(x509.Name([]), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            # Critical, because there is no subject (RFC 5280, 4.2.1.6).
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(issuer, critical=False)
        )
        certificate = built.sign(self._key, hashes.SHA256())
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - GOOD_FOR)
            .not_valid_after(now + GOOD_FOR)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )
