"""Makes an authority and certificates for the nodes and clients of a cluster, for ``viewstamp tls new``.

Needs the library ``cryptography`` (``pip install 'viewstamp[tls]'``). Only the machine that makes certificates needs
it: nodes and clients use OpenSSL through the standard library.

The files, in the directory of the nodes' settings files::

    DIR/tls/ca.pem, ca.key        the authority; with ca.key one can make a certificate of any member. While one
                               replaces another, ca.pem has both, and ca.key is the key of the new one
    DIR/tls/NODE.pem, NODE.key    for each settings file: viewstamp://CLUSTER/member/NODE
    DIR/tls/NAME.pem, NAME.key    for each client: viewstamp://CLUSTER/client/NAME

If the process dies at any line, an existing certificate and its key are both whole, or they do not fit together, which
running nodes and ``Tls`` notice; the next call then makes both again. The authority's key is written before its
certificate, and an authority without a certificate has signed nothing, so it is made again. The next authority is
written to ca.pem before its key: until the key is there, the old one signs, and a repetition makes another one.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from viewstamp.config.load import load_settings
from viewstamp.config.model import NodeSettings
from viewstamp.errors import ConfigError, StorageError
from viewstamp.host.address import parse_address
from viewstamp.host.private import make_private_directory, open_private
from viewstamp.host.tls import LoadedTls, TlsFiles, inspect
from viewstamp.ids import CertificateName

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = [
    "DAYS",
    "MadeCertificate",
    "certificates_in",
    "check_library",
    "drop_old_authority",
    "make_certificates",
    "make_next_authority",
]

DAYS: Final = 365
"""Days for which a certificate is valid, unless the caller says otherwise."""
_AUTHORITY_DAYS: Final = 3650
_BACKDATED: Final = datetime.timedelta(hours=1)
"""A certificate begins this time before its creation, because the clocks of machines that check it differ a little."""
_CLIENT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCertificate:
    """A certificate in a directory. ``is_new`` = this call has made it; ``settings`` = the file of its node.

    ``is_switched_on`` = this call has added the section ``[tls]`` to that file.
    """

    tls: LoadedTls
    is_new: bool
    settings: str = ""
    is_switched_on: bool = False


def make_certificates(
    directory: str, *, clients: Sequence[str] = (), days: int = DAYS, renew: bool = False
) -> list[MadeCertificate]:
    """Make the authority of a cluster, and a certificate for each settings file in ``directory`` and each client.

    Files that are there stay as they are, unless ``renew``, which makes all certificates again and keeps the authority.
    Settings files without a section ``[tls]`` get one. Running nodes notice new files by themselves, but a section
    ``[tls]`` takes effect at their next start. Blocks. Durable on return.

    Raises:
      ConfigError: there are no settings files, they are of several clusters, a name is not allowed, or the library
        ``cryptography`` is not installed. Nothing was changed.
      StorageError: a file cannot be written.
    """
    directory = os.path.abspath(directory)
    found = _settings_in(directory)
    cluster = next(iter(found.values())).cluster.id
    members = {str(settings.node.id): file for file, settings in found.items()}
    if "ca" in members:
        raise ConfigError(
            f"{members['ca']} is of a node called ca, whose certificate would replace the authority's, tls/ca.pem",
            remedy="choose another name for the node; nothing was changed",
        )
    for name in clients:
        if not _CLIENT_NAME.fullmatch(name) or name in members or name == "ca":
            raise ConfigError(
                f"{name!r} cannot name a client; allowed: 1 to 64 of the characters A-Z a-z 0-9 . _ -, starting with a"
                f' letter or digit, and neither "ca" nor the name of a node ({", ".join(members)})',
                remedy="choose another name",
            )
    place = os.path.join(directory, "tls")
    with _writing(place):
        make_private_directory(place)
        authority = _Authority.open(place, cluster)
        made = []
        for node, file in members.items():
            own = found[file].node
            hosts = list(dict.fromkeys(parse_address(address)[0] for address in (own.advertise, own.listen)))
            named = CertificateName(cluster, True, node)
            made.append(_certificate(authority, _files(place, node), named, hosts, days, renew=renew, settings=file))
        for client in clients:
            named = CertificateName(cluster, False, client)
            made.append(_certificate(authority, _files(place, client), named, [], days, renew=renew))
        added = {file for file in found if _add_section(file, found[file].node.id)}
    return [replace(each, is_switched_on=each.settings in added) for each in made]


def certificates_in(directory: str) -> list[LoadedTls]:
    """Return the certificates in ``directory``/tls, whether or not they are valid now. Blocks.

    Raises:
      ConfigError: one of them is wrong.
    """
    place = os.path.join(directory, "tls")
    return [inspect(_files(place, stem)) for stem in _stems(place)]


def _stems(place: str) -> list[str]:
    """Return the names of the certificates in a directory that have a key there."""
    names = sorted(os.listdir(place)) if os.path.isdir(place) else []
    stems = [name.removesuffix(".pem") for name in names if name.endswith(".pem") and name != "ca.pem"]
    return [stem for stem in stems if stem + ".key" in names]


def make_next_authority(directory: str) -> None:
    """Make an authority that is going to replace the present one. Both are trusted, and the new one signs.

    Blocks. Durable on return. Running nodes notice it by themselves.

    Raises:
      ConfigError: there is none to replace, or the last replacement is not finished. Nothing was changed.
      StorageError: a file cannot be written.
    """
    place, cluster = _place_of(directory)
    with _writing(place):
        authority = _Authority.open(place, cluster)
        if authority.is_next:
            raise ConfigError(
                f"{place}/ca.pem has the next authority already; nothing was changed",
                remedy="renew all certificates (viewstamp tls new --renew), then drop the old authority (viewstamp tls"
                " replace-authority --finish)",
            )
        authority.make_next()


def drop_old_authority(directory: str) -> None:
    """Trust only the authority that signs. Certificates of the earlier one are refused from then on.

    Blocks. Durable on return. Running nodes notice it by themselves; open connections go on.

    Raises:
      ConfigError: certificates in the directory are still those of the old authority. Nothing was changed.
      StorageError: a file cannot be written.
    """
    place, cluster = _place_of(directory)
    with _writing(place):
        authority = _Authority.open(place, cluster)
        old = [stem for stem in _stems(place) if not authority.has_signed(_files(place, stem))]
        if old:
            raise ConfigError(
                f"the old authority has signed the certificates of {', '.join(old)}; nothing was changed",
                remedy="make them again: viewstamp tls new --renew, for clients with --client NAME; then copy them to"
                " their machines. Remove the files of those that are not used any more",
            )
        authority.drop_old()


def _place_of(directory: str) -> tuple[str, str]:
    """Return the directory of the certificates, and the id of the cluster. Raises ConfigError without an authority."""
    directory = os.path.abspath(directory)
    settings = next(iter(_settings_in(directory).values()))
    place = os.path.join(directory, "tls")
    if not os.path.exists(os.path.join(place, "ca.pem")):
        raise ConfigError(f"there is no authority in {place}", remedy="make one: viewstamp tls new")
    return place, settings.cluster.id


@contextlib.contextmanager
def _writing(place: str) -> Iterator[None]:
    """Turn an error of the operating system into one with a remedy."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write to {place}: {error.strerror}",
            remedy="choose a directory that this user may write, on a disk with free space",
        ) from error


def _settings_in(directory: str) -> dict[str, NodeSettings]:
    """Return the settings in the files of a directory, as they are with a section ``[tls]``."""
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    found: dict[str, NodeSettings] = {}
    planned = {"tls.authority": "-", "tls.certificate": "-", "tls.key": "-"}
    for file in (os.path.join(directory, name) for name in names if name.endswith(".toml")):
        with open(file, "rb") as stream:
            section = tomllib.load(stream).get("tls", {})
        authority = os.path.join(directory, str(section.get("authority", "")) or "tls/ca.pem")
        if os.path.normpath(authority) != os.path.join(directory, "tls", "ca.pem"):
            raise ConfigError(
                f"{file} has another authority than {directory}/tls/ca.pem: {section['authority']}",
                remedy="have that authority sign the certificates; they need the URI viewstamp://CLUSTER/member/NODE",
            )
        found[file] = load_settings(file, environment={}, overrides=planned).settings
    clusters = {settings.cluster.id for settings in found.values()}
    if len(clusters) != 1:
        problem = f"has settings files of the clusters {', '.join(sorted(clusters))}" if clusters else "has none"
        raise ConfigError(
            f"{directory} has to hold the settings files of one cluster's nodes, and it {problem}",
            remedy="create them with `viewstamp config new`, or name another directory with --dir. After a fork or a"
            " recovery, put the new cluster's files and the authority (tls/ca.pem, tls/ca.key) into a new directory",
        )
    return found


def _files(place: str, stem: str) -> TlsFiles:
    certificate, key = os.path.join(place, f"{stem}.pem"), os.path.join(place, f"{stem}.key")
    return TlsFiles(authority=os.path.join(place, "ca.pem"), certificate=certificate, key=key)


def _certificate(
    authority: _Authority,
    files: TlsFiles,
    name: CertificateName,
    hosts: Sequence[str],
    days: int,
    *,
    renew: bool,
    settings: str = "",
) -> MadeCertificate:
    is_new = renew or not os.path.exists(files.certificate) or not os.path.exists(files.key)
    if not is_new:
        try:
            is_new = inspect(files).name != name
        except ConfigError:
            is_new = True  # The last call ended between its two files, or another authority has signed it.
    if is_new:
        authority.sign(files, name, hosts, days)
    return MadeCertificate(tls=inspect(files), is_new=is_new, settings=settings)


def _add_section(file: str, node: str) -> bool:
    """Add ``[tls]`` to a settings file; return False if it has one."""
    with open(file, encoding="utf-8") as stream:
        text = stream.read()
    if "tls" in tomllib.loads(text):
        return False
    section = f'\n[tls]\nauthority = "tls/ca.pem"\ncertificate = "tls/{node}.pem"\nkey = "tls/{node}.key"\n'
    _write(file, (text.rstrip("\n") + "\n" + section).encode())
    return True


class _Authority:
    """The authority of a cluster: its certificate and its private key. ``trusted`` has those of all in ca.pem."""

    def __init__(self, place: str, cluster: str, trusted: list[x509.Certificate], key: EllipticCurvePrivateKey) -> None:
        self._place = place
        self._cluster = cluster
        self._trusted = trusted
        self._key = key
        own = [each for each in trusted if each.public_key() == key.public_key()]
        if not own:
            raise ConfigError(
                f"{place}/ca.key is not the key of an authority in {place}/ca.pem", remedy="put the right files back"
            )
        self._certificate = own[0]

    @property
    def is_next(self) -> bool:
        """Whether it is replacing an earlier one, which is still trusted."""
        return self._certificate is not self._trusted[0]

    def has_signed(self, files: TlsFiles) -> bool:
        """Return whether a certificate is of this authority."""
        with open(files.certificate, "rb") as stream:
            certificate = _library().x509.load_pem_x509_certificates(stream.read())[0]
        return bool(certificate.issuer == self._certificate.subject)

    def make_next(self) -> None:
        """Make another authority, which signs from now on; this one stays trusted."""
        library = _library()
        # Another name, because OpenSSL and ``host.tls`` find the authority of a certificate by its name.
        certificate, key = _new_authority(
            library, f"viewstamp cluster {self._cluster}"[:55] + f" {library.x509.random_serial_number():x}"[:9]
        )
        _write(os.path.join(self._place, "ca.pem"), _pem(library, [self._certificate, certificate]))
        _write(os.path.join(self._place, "ca.key"), _key_bytes(library, key))

    def drop_old(self) -> None:
        """Trust only this authority."""
        _write(os.path.join(self._place, "ca.pem"), _pem(_library(), [self._certificate]))

    @classmethod
    def open(cls, place: str, cluster: str) -> _Authority:
        """Read the authority in ``place``, or make one."""
        library = _library()
        certificate_file, key_file = os.path.join(place, "ca.pem"), os.path.join(place, "ca.key")
        if os.path.exists(certificate_file):
            try:
                with open(certificate_file, "rb") as stream:
                    trusted = library.x509.load_pem_x509_certificates(stream.read())
                with open(key_file, "rb") as stream:
                    key: Any = library.serialization.load_pem_private_key(stream.read(), password=None)
            except FileNotFoundError as error:
                raise ConfigError(
                    f"{key_file} is missing, and without it {certificate_file} cannot sign certificates",
                    remedy="put the key back while you make certificates; or have your own authority sign them",
                ) from error
            except (ValueError, TypeError) as error:
                raise ConfigError(
                    f"{certificate_file} or {key_file} cannot be read: {error}", remedy="put the right files back"
                ) from error
            return cls(place, cluster, trusted, key)
        certificate, key = _new_authority(library, f"viewstamp cluster {cluster}"[:64])
        _write(key_file, _key_bytes(library, key))
        _write(certificate_file, _pem(library, [certificate]))
        return cls(place, cluster, [certificate], key)

    def sign(self, files: TlsFiles, name: CertificateName, hosts: Sequence[str], days: int) -> None:
        """Write a new certificate and its key."""
        library = _library()
        x509, oid = library.x509, library.x509.oid.ExtendedKeyUsageOID
        names: list[Any] = [x509.UniformResourceIdentifier(str(name))]
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        purposes = [oid.SERVER_AUTH, oid.CLIENT_AUTH] if name.is_member else [oid.CLIENT_AUTH]
        key = library.ec.generate_private_key(library.ec.SECP256R1())
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        subject = _subject(library, f"{'member' if name.is_member else 'client'} {name.name}"[:64])
        builder = (
            _begun(library, subject, self._certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(library, digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        )
        certificate = builder.sign(self._key, library.hashes.SHA256())
        _write(files.key, _key_bytes(library, key))
        _write(files.certificate, certificate.public_bytes(library.serialization.Encoding.PEM))


def check_library() -> None:
    """Check that certificates can be made here. Raises ConfigError if the library ``cryptography`` is missing."""
    _library()


def _library() -> Any:
    """Return the parts of ``cryptography``, which are imported here because only this module needs them."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigError(
            "making certificates needs the library `cryptography`",
            remedy="pip install 'viewstamp[tls]' on the machine that makes them; nodes and clients do not need it",
        ) from error
    return _Library(x509, hashes, serialization, ec)


@dataclass(frozen=True, slots=True)
class _Library:
    x509: Any
    hashes: Any
    serialization: Any
    ec: Any


def _new_authority(library: Any, called: str) -> tuple[Any, Any]:
    """Return the certificate and the key of a new authority."""
    key = library.ec.generate_private_key(library.ec.SECP256R1())
    name = _subject(library, called)
    builder = (
        _begun(library, name, name, key, _AUTHORITY_DAYS)
        .add_extension(library.x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(library, key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(library.x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, library.hashes.SHA256()), key


def _pem(library: Any, certificates: Sequence[Any]) -> bytes:
    return b"".join(each.public_bytes(library.serialization.Encoding.PEM) for each in certificates)


def _subject(library: Any, name: str) -> Any:
    return library.x509.Name([library.x509.NameAttribute(library.x509.oid.NameOID.COMMON_NAME, name)])


def _begun(library: Any, subject: Any, issuer: Any, key: Any, days: int) -> Any:
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return (
        library.x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(library.x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(library: Any, **wanted: bool) -> Any:
    usages = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return library.x509.KeyUsage(**{usage: wanted.get(usage, False) for usage in usages})


def _key_bytes(library: Any, key: Any) -> bytes:
    written: bytes = key.private_bytes(
        library.serialization.Encoding.PEM,
        library.serialization.PrivateFormat.PKCS8,
        library.serialization.NoEncryption(),
    )
    return written


def _write(path: str, data: bytes) -> None:
    """Replace a file atomically and durably; only its user may read it."""
    with open(path + ".new", "wb", opener=open_private) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + ".new", path)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
