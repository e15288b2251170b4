"""The certificate of a process: its files, their checks, and the contexts that use them.

``Tls`` loads the authority, the certificate and the key, and loads them again when the files change. ``tls_stream.py``
uses them for one connection, and lists what each side checks. Uses neither an event loop nor sockets.

A certificate names one part of a cluster by a URI among its alternative names (``ids.CertificateName``). Host names and
addresses in it are not compared, because addresses change, and a name of a machine says nothing about its cluster.

TLS 1.2 is the lowest version. Renegotiation, compression, tickets and resumption are off: each connection verifies the
certificate again, so that an expired one is not used any longer.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from viewstamp.errors import ConfigError
from viewstamp.ids import CertificateName

__all__ = ["LoadedTls", "Tls", "TlsFiles", "Validity", "inspect", "load", "shown_time", "validity_of"]

_LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the files."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, to read the dates of a certificate of this process that has expired."""
_ISSUER_UNKNOWN: Final = (2, 18, 19, 20, 21)
"""OpenSSL's codes of a certificate that no known authority has signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files by which one side of a TLS connection proves its name and checks the other side. All are PEM.

    Pass them to :func:`viewstamp.connect` as ``tls=``.

    Example::

        tls = viewstamp.TlsFiles(authority="tls/ca.pem", certificate="tls/alice.pem", key="tls/alice.key")

    Attributes:
      authority: the certificates of the authorities whose certificates are accepted. Two, while one replaces the other.
      certificate: the own certificate, followed by intermediate ones if there are any.
      key: the private key of the certificate, without a password. Only its user should be able to read it.
    """

    authority: str
    certificate: str
    key: str


class Validity(NamedTuple):
    """The time in which a certificate is valid, in seconds since 1970."""

    begins: float
    ends: float

    def __str__(self) -> str:
        return f"from {shown_time(self.begins)} to {shown_time(self.ends)}"


class LoadedTls(NamedTuple):
    """The content of :class:`TlsFiles`, checked.

    Attributes:
      files: the files.
      name: the part of a cluster that the certificate names.
      validity: of the certificate, and of the authority that has signed it.
      hosts: host names and addresses that the certificate names, for information only.
      server: the context of connections that are accepted.
      client: the context of connections that are opened.
    """

    files: TlsFiles
    name: CertificateName
    validity: Validity
    hosts: tuple[str, ...]
    server: ssl.SSLContext
    client: ssl.SSLContext


def shown_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as text, for example "2026-11-23 00:40:31 UTC"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _no_report(event: str, fields: Mapping[str, object]) -> None:
    pass


class Tls:
    """The certificate of this process and the contexts that use it.

    The files are looked at when a connection begins, at most once a second, in a thread. If they have changed, they are
    loaded, and later connections use them. Files that are wrong are not used: ``trouble`` has the reason, the earlier
    ones stay in use, and each look tries again, because time alone can make a certificate valid.

    Invariants:
      * ``loaded`` has passed all checks of :func:`load`, and always names the same part of the cluster
    """

    def __init__(
        self,
        files: TlsFiles,
        *,
        expected: CertificateName | None = None,
        report: Callable[[str, Mapping[str, object]], object] = _no_report,
    ) -> None:
        """Load the files. Blocks.

        Args:
          files: see :class:`TlsFiles`.
          expected: the part of a cluster that the certificate has to name; None = any part.
          report: called with an event and its fields when the files were loaded again or are wrong, in a thread.

        Raises:
          ConfigError: a file cannot be read or is wrong; the certificate is not valid now, or names another part.
        """
        self.files = files
        self._report = report
        self._seen = _marks(files)
        self.loaded = load(files)
        """The present certificate and contexts. Replaced, never changed in place."""
        self.trouble = ""
        """Why the files are not used as they are now; "" = they are used."""
        self._expected = self.loaded.name if expected is None else expected
        _check_name(self.loaded, self._expected)
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._looking = threading.Lock()

    def current(self) -> LoadedTls:
        """Return the present certificate and contexts, for a connection that begins. Never blocks."""
        if time.monotonic() >= self._look_at and self._looking.acquire(blocking=False):
            self._look_at = time.monotonic() + _LOOK_SECONDS
            try:
                threading.Thread(target=self._look, name="viewstamp-tls", daemon=True).start()
            except (RuntimeError, MemoryError):  # The process has too many threads. A later connection looks.
                self._looking.release()
        return self.loaded

    @property
    def status(self) -> dict[str, object]:
        """Return the fields of a node's status: {"name", "certificate", "begins_us", "ends_us", "trouble"}."""
        loaded = self.current()
        return {
            "name": str(loaded.name),
            "certificate": self.files.certificate,
            "begins_us": round(loaded.validity.begins * 1e6),
            "ends_us": round(loaded.validity.ends * 1e6),
            "trouble": self.trouble,
        }

    def look(self) -> None:
        """Look at the files now, and load them if they have changed or were wrong. Blocks; for a thread."""
        with self._looking:
            self._load_again()

    def _look(self) -> None:
        try:
            self._load_again()
        finally:
            self._looking.release()

    def _load_again(self) -> None:
        marks = _marks(self.files)
        if marks == self._seen and not self.trouble:
            return
        self._seen = marks
        try:
            found = load(self.files)
            _check_name(found, self._expected)
        except ConfigError as error:
            is_known = _without_clock(error.message) == _without_clock(self.trouble)
            self.trouble = error.message
            if is_known:
                return
            fields = {"reason": error.message, "in_use_until": shown_time(self.loaded.validity.ends)}
            self._report("! new certificate refused", fields)
            return
        self.loaded, self.trouble = found, ""
        fields = {"certificate": self.files.certificate, "ends": shown_time(found.validity.ends)}
        self._report("= certificate replaced", fields)


def _without_clock(message: str) -> str:
    """Return the message of an error without the present time, which differs at each look."""
    return message.partition(", and the clock of this machine says")[0]


def _marks(files: TlsFiles) -> tuple[tuple[int, ...], ...]:
    """Return marks of the files that change when one of them, or its owner or mode, is changed or replaced."""
    marks: list[tuple[int, ...]] = []
    for path in (files.authority, files.certificate, files.key):
        try:
            found = os.stat(path)
            marks.append((found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size))
        except OSError as error:
            marks.append((error.errno or 0,))
    return tuple(marks)


def _check_name(loaded: LoadedTls, expected: CertificateName) -> None:
    if loaded.name != expected:
        raise ConfigError(
            f"{loaded.files.certificate} is the certificate of {loaded.name}, but this is {expected}",
            remedy="set [tls] certificate and key to those of this node or client. After a fork or a restore, which"
            " make a new cluster, make new certificates: `viewstamp tls new --dir DIR --renew`",
        )


# -- Loading ---------------------------------------------------------------------------------------------------


def load(files: TlsFiles, *, now: float | None = None) -> LoadedTls:
    """Read the files, and check that they fit together and are valid ``now`` (None = by the wall clock). Blocks.

    Raises:
      ConfigError: a file cannot be read or is wrong; the message names it.
    """
    found = inspect(files)
    now = time.time() if now is None else now
    if not found.validity.begins <= now < found.validity.ends:
        when = "is not valid yet" if now < found.validity.begins else "has expired"
        raise ConfigError(
            f"the certificate in {files.certificate} {when}: it is valid {found.validity}, and the clock of this"
            f" machine says {shown_time(now)}",
            remedy="correct the clock if it is wrong; otherwise write a new certificate: `viewstamp tls new --renew`",
        )
    return found


def inspect(files: TlsFiles) -> LoadedTls:
    """Read the files, and check that they fit together, without regard to the time. Blocks.

    Raises:
      ConfigError: as :func:`load`.
    """
    texts = {path: _read(path) for path in (files.authority, files.certificate, files.key)}
    server, client = _contexts(files, texts)
    facts = _facts(files, texts)
    name = CertificateName.find(uri for kind, uri in facts.get("subjectAltName", ()) if kind == "URI")
    if name is None:
        raise ConfigError(
            f"the certificate in {files.certificate} names no part of a cluster: it needs exactly one URI like"
            " viewstamp://CLUSTER/member/NODE or viewstamp://CLUSTER/client/NAME among its alternative names",
            remedy="make it by `viewstamp tls new`, or have the authority add the URI",
        )
    validity = validity_of(facts)
    for authority in server.get_ca_certs():
        if authority["subject"] == facts["issuer"]:
            of_authority = validity_of(authority)
            validity = Validity(max(validity.begins, of_authority.begins), min(validity.ends, of_authority.ends))
    hosts = tuple(value for kind, value in facts.get("subjectAltName", ()) if kind in ("DNS", "IP Address"))
    return LoadedTls(files, name, validity, hosts, server, client)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}",
            remedy="correct the path in [tls], or let the user of this process read the file",
        ) from error
    except UnicodeDecodeError as error:
        raise _not_pem(path) from error


def _not_pem(path: str) -> ConfigError:
    return ConfigError(
        f"{path} is no PEM file of the right kind",
        remedy="set [tls] authority and certificate to files with BEGIN CERTIFICATE, and key to one with BEGIN PRIVATE"
        " KEY",
    )


def _no_password() -> str:
    raise ConfigError("the private key has a password", remedy="store it without one, readable only by its user")


def _contexts(files: TlsFiles, texts: Mapping[str, str], flags: int = 0) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of the two sides; ``flags`` are more flags of the verification."""
    contexts = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.check_hostname = False  # The name in the certificate decides; see the module's docstring.
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
        if flags:
            context.verify_flags = ssl.VerifyFlags(context.verify_flags | flags)
        try:
            context.load_verify_locations(cadata=texts[files.authority])
        except (ssl.SSLError, ValueError) as error:
            raise _not_pem(files.authority) from error
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    f"the private key in {files.key} is not the one of the certificate in {files.certificate}",
                    remedy="set [tls] certificate and key to files that belong together",
                ) from error
            is_key = "BEGIN CERTIFICATE" in texts[files.certificate]
            raise _not_pem(files.key if is_key else files.certificate) from error
        except OSError as error:  # It was there a moment ago.
            raise ConfigError(f"cannot read {files.certificate} or {files.key}: {error.strerror}") from error
        contexts.append(context)
    server, client = contexts
    server.num_tickets = 0
    return server, client


def _facts(files: TlsFiles, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the own certificate, after a handshake with itself that ignores the time.

    The handshake checks by OpenSSL's own rules that the other side is going to accept the certificate: that the
    authority has signed it, and that it is for clients; a member's also for servers.
    """
    server, client = _contexts(files, texts, _NO_CHECK_TIME)
    client.verify_mode = ssl.CERT_NONE
    try:
        facts = _shake_hands(client, server)
        uris = [uri for kind, uri in facts.get("subjectAltName", ()) if kind == "URI"]
        name = CertificateName.find(uris)
        if name is not None and name.is_member:
            client.verify_mode = ssl.CERT_REQUIRED
            _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{files.certificate} is no certificate that others accept: {error.verify_message}"
            + (f" (authority: {files.authority})" if error.verify_code in _ISSUER_UNKNOWN else ""),
            remedy="set [tls] authority to the authority that has signed the certificate; a member's certificate has to"
            " be for servers and clients, a client's for clients",
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(
            f"{files.certificate} cannot be used: {error.reason or error}", remedy="make it by `viewstamp tls new`"
        ) from error
    return facts


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> dict[str, Any]:
    """Return the fields of the client's certificate after a handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    facts: dict[str, Any] = sides[1].getpeercert() or {}
    return facts


def validity_of(facts: Mapping[str, Any]) -> Validity:
    """Return the validity in the fields of a certificate, as ``getpeercert`` of Python has them."""
    times = [ssl.cert_time_to_seconds(str(facts[key])) for key in ("notBefore", "notAfter")]
    return Validity(float(times[0]), float(times[1]))
