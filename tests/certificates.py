"""Authorities and certificates for tests: also those that no careful tool would make."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from viewstamp.host.tls import TlsFiles
from viewstamp.ids import CertificateName

__all__ = ["CLUSTER", "Authority", "client", "member"]

CLUSTER = "shop"
DAY = datetime.timedelta(days=1)


def member(node: str, cluster: str = CLUSTER) -> str:
    """Return the URI of a member."""
    return str(CertificateName(cluster, True, node))


def client(name: str = "alice", cluster: str = CLUSTER) -> str:
    """Return the URI of a client."""
    return str(CertificateName(cluster, False, name))


class Authority:
    """An authority in a directory of its own; each certificate gets its files there."""

    def __init__(self, directory: Path, *, begins: float = -1, ends: float = 10) -> None:
        """Make the authority, valid from ``begins`` to ``ends`` days from now."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(f"authority {directory}"[-60:])
        builder = _begin(self._subject, self._subject, self._key.public_key(), begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.file = directory / "ca.pem"
        self.file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        *uris: str,
        stem: str = "",
        begins: float = -1,
        ends: float = 10,
        is_server: bool = True,
        is_client: bool = True,
        dns: Sequence[str] = (),
    ) -> TlsFiles:
        """Make a certificate with these URIs, valid from ``begins`` to ``ends`` days from now; return its files."""
        stem = stem or (uris[0].rpartition("/")[2] if uris else "nobody")
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] * is_server + [ExtendedKeyUsageOID.CLIENT_AUTH] * is_client
        names = [x509.UniformResourceIdentifier(uri) for uri in uris] + [x509.DNSName(name) for name in dns]
        builder = _begin(_name(stem), self._subject, key.public_key(), begins, ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        certificate = self.directory / f"{stem}.pem"
        (self.directory / f"{stem}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return self.files(stem)

    def files(self, stem: str) -> TlsFiles:
        """Return the files of a certificate."""
        return TlsFiles(
            authority=str(self.file),
            certificate=str(self.directory / f"{stem}.pem"),
            key=str(self.directory / f"{stem}.key"),
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: float, ends: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + ends * DAY)
    )
