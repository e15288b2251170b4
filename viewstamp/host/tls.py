"""TLS over any connection, and the files that it needs. Uses neither an event loop nor sockets.

``Tls`` loads the authority, the certificate and the key of a process, and loads them again when the files change.
``TlsStream`` is TLS over one connection: it takes encrypted bytes from the connection below it and hands decrypted
bytes to its handler. The networks of asyncio (``tls_network.py``) and of trio (``viewstamp/trio/network.py``) use it.

Both sides show a certificate, and both check the other's
---------------------------------------------------------
| check | by | the connection ends |
| --- | --- | --- |
| a certificate of the authority, valid now, for this purpose | OpenSSL, on both sides | in the handshake |
| the certificate of the listening side names a member of the cluster that the own certificate names | ``TlsStream``, \
on the connecting side | before a byte is sent to it |
| the name of the connecting side is the one that it may act for | the owner of the connection, by ``identity`` | with \
an answer that has the reason |
| the node that answers is the one that its certificate names | ``wire/handshake.py``, on the connecting side | after \
WELCOME |

A certificate names one part of a cluster by a URI among its alternative names (``ids.CertificateName``). Host names and
addresses in it are not compared, because addresses change, and a name of a machine says nothing about its cluster.

Limits
------
The owner of a listening connection gets it before the handshake, so that its limits of time and number hold for
handshakes too (``node/crowd.py``). OpenSSL limits the size of handshake messages. TLS 1.2 is the lowest version.
Renegotiation, compression, tickets and resumption are off: each connection verifies the certificate again, so that an
expired one is not used any longer.
"""

from __future__ import annotations

import errno
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from viewstamp.errors import ConfigError, TlsError
from viewstamp.host.interfaces import Buffer, ConnectionHandler
from viewstamp.ids import CertificateName

__all__ = ["LoadedTls", "Tls", "TlsFiles", "TlsStream", "Validity", "shown_time"]

_LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at the files."""
_RECORD_BYTES: Final = 16 * 1024
"""The most that one record of TLS holds, and so the most that one call of OpenSSL encrypts or decrypts."""
_COPIED_BYTES: Final = 4096
"""Buffers below this size are joined, because a record of its own costs more than a copy of the bytes."""
_HANDSHAKE_BYTE: Final = 0x16
"""The first byte of every TLS connection. A frame of viewstamp begins with another one."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, to read the dates of a certificate of this process that has expired."""
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_ISSUER_UNKNOWN: Final = (2, 18, 19, 20, 21)
"""OpenSSL's codes of a certificate that no known authority has signed."""

_NO_TLS: Final = frozenset(
    ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
)
"""OpenSSL's reasons if the other side does not speak TLS."""
_REFUSALS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "no authority that it knows has signed it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired, or is not valid yet, by the clock there",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not valid there",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it cannot be verified there",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is not for this purpose",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "none was shown",
}
"""OpenSSL's names of the alerts by which the other side refuses the certificate of this one, and their meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files by which one side of a TLS connection proves its name and checks the other side. All are PEM.

    Example::

        tls = viewstamp.TlsFiles(authority="tls/ca.pem", certificate="tls/alice.pem", key="tls/alice.key")
        client = viewstamp.connect("n1.example.net:7001", tls=tls)

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
    loaded, and later connections use them. Files that are wrong are not used: ``trouble`` has the reason, and the
    earlier ones stay in use.

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
            threading.Thread(target=self._look, name="viewstamp-tls", daemon=True).start()
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

    def _look(self) -> None:
        try:
            marks = _marks(self.files)
            if marks == self._seen:
                return
            self._seen = marks
            try:
                found = load(self.files)
                _check_name(found, self._expected)
            except ConfigError as error:
                self.trouble = error.message
                fields = {"reason": error.message, "in_use_until": shown_time(self.loaded.validity.ends)}
                self._report("! new certificate refused", fields)
                return
            self.loaded, self.trouble = found, ""
            fields = {"certificate": self.files.certificate, "ends": shown_time(found.validity.ends)}
            self._report("= certificate replaced", fields)
        finally:
            self._looking.release()


def _marks(files: TlsFiles) -> tuple[tuple[int, ...], ...]:
    """Return marks of the files that change when one of them is written or replaced."""
    marks: list[tuple[int, ...]] = []
    for path in (files.authority, files.certificate, files.key):
        try:
            found = os.stat(path)
            marks.append((found.st_ino, found.st_mtime_ns, found.st_size))
        except OSError as error:
            marks.append((error.errno or 0,))
    return tuple(marks)


def _check_name(loaded: LoadedTls, expected: CertificateName) -> None:
    if loaded.name != expected:
        raise ConfigError(
            f"{loaded.files.certificate} is the certificate of {loaded.name}, and this is {expected}",
            remedy="set [tls] certificate and key to those of this node or client; `viewstamp tls show` prints the name"
            " in a certificate",
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
    validity = _validity_of(facts)
    for authority in server.get_ca_certs():
        if authority["subject"] == facts["issuer"]:
            of_authority = _validity_of(authority)
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


def _validity_of(facts: Mapping[str, Any]) -> Validity:
    times = [ssl.cert_time_to_seconds(str(facts[key])) for key in ("notBefore", "notAfter")]
    return Validity(float(times[0]), float(times[1]))


# -- One connection --------------------------------------------------------------------------------------------


class InnerConnection(Protocol):
    """The connection below TLS, as far as a :class:`TlsStream` needs it."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Queue ``buffers``."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued here and not yet passed to the OS."""
        ...

    def close(self) -> None:
        """Send the queued bytes, then close."""
        ...

    def abort(self) -> None:
        """Close immediately."""
        ...


def _ignore(error: BaseException | None) -> None:
    pass


class TlsStream:
    """TLS over one connection: the handler of the connection below it, and the connection of its own handler.

    Invariants:
      * ``identity`` is set before the handler gets a byte, and before a byte of the handler is sent
      * the handler gets no byte after ``close``, ``abort`` or an error, and ``on_closed`` exactly once
      * ``on_open`` is called once: with None after the handshake, or with the error that ended the connection before
    """

    def __init__(
        self,
        inner: InnerConnection,
        tls: LoadedTls,
        *,
        is_server: bool,
        peer: str,
        on_open: Callable[[BaseException | None], object] = _ignore,
        plain_refusal: Sequence[Buffer] = (),
    ) -> None:
        """Begin. The owner sets ``handler``, at the latest in ``on_open``, and then calls :meth:`begin`.

        Args:
          inner: the connection below.
          tls: the certificate and the contexts.
          is_server: whether this side has accepted the connection.
          peer: the address of the other side, for messages.
          on_open: see the invariants.
          plain_refusal: the answer to a connection that does not speak TLS, before it is closed.
        """
        self.peer = peer
        self.identity: CertificateName | None = None
        """The part of a cluster that the certificate of the other side names.

        None = it names none, or there was no handshake yet.
        """
        self.handler: ConnectionHandler | None = None
        self._inner = inner
        self._own = tls
        self._is_server = is_server
        self._on_open = on_open
        self._plain_refusal = plain_refusal
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = tls.server if is_server else tls.client
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self.is_open = False
        """Whether the handshake is complete."""
        self._has_received = False
        self._is_closing = False
        """Nothing more is received or sent."""
        self._closes_when_open = False
        self._queued: list[Buffer] = []
        """Buffers to send after the handshake."""
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Send the first bytes of the handshake, if this side opens the connection."""
        if not self._is_server:
            self._shake_hands()

    # The connection below calls these.

    def on_bytes(self, data: bytes) -> None:
        """Decrypt bytes, and pass them on. Raises TlsError, and the errors of the handler."""
        if self._is_closing:
            return
        if not self._is_open_or_shakes(data):
            return
        read, pending, incoming = self._tls.read, self._tls.pending, self._incoming
        assert self.handler is not None, "it is set in on_open at the latest"
        # Pieces are not joined here, because the handler has to join them with those of other chunks anyway.
        while (incoming.pending or pending()) and not self._is_closing:
            try:
                piece = read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                break  # The rest of a record has not arrived yet.
            except ssl.SSLError as error:
                raise self._explain(error) from error
            if not piece:  # The other side has closed.
                self.close()
                break
            self.handler.on_bytes(piece)
        if self._outgoing.pending and not self._is_closing:
            self._flush()  # For example the answer to a request for new keys.

    def on_closed(self, error: BaseException | None) -> None:
        """Report the end."""
        self._is_closing = True
        self._queued.clear()
        error = self._error or error
        if not self.is_open and not isinstance(error, TlsError):
            error = self._ended_early(error)
        if not self.is_open:
            self._on_open(error)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.on_closed(error)

    # Its user calls these.

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt and queue ``buffers``. Never awaits; dropped after the end."""
        if self._is_closing:
            return
        if self.is_open:
            self._encrypt(buffers)
        else:
            self._queued += buffers

    @property
    def unsent_bytes(self) -> int:
        """Bytes not yet passed to the OS, most of them encrypted."""
        return self._inner.unsent_bytes + sum(map(len, self._queued)) if self._queued else self._inner.unsent_bytes

    def close(self) -> None:
        """Send the queued bytes, then close. Idempotent."""
        if self._is_closing:
            return
        if not self.is_open and self._queued:
            self._closes_when_open = True
            return
        self._is_closing = True
        if self.is_open:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # Writes the notice of the end; the other side's is not waited for.
            self._flush()
        self._inner.close()

    def abort(self) -> None:
        """Close immediately."""
        self._is_closing = True
        self._inner.abort()

    # The handshake.

    def _is_open_or_shakes(self, data: bytes) -> bool:
        """Take encrypted bytes, and go on with the handshake; return whether it is complete and the stream goes on."""
        if not self._has_received:
            self._has_received = True
            if data[0] != _HANDSHAKE_BYTE and self._is_server:
                if self._plain_refusal:
                    self._inner.send(self._plain_refusal)
                self._fail(
                    TlsError(
                        f"{self.peer} does not speak TLS, and this node accepts nothing else",
                        remedy="set [tls] on every node, or the TLS options of the client",
                    )
                )
                return False
        self._incoming.write(data)
        return self.is_open or self._shake_hands()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # The alert, which has the reason for the other side.
            self._fail(self._explain(error))
            return False
        facts: Any = self._tls.getpeercert() or {}
        self.identity = CertificateName.find(uri for kind, uri in facts.get("subjectAltName", ()) if kind == "URI")
        wrong = None if self._is_server else self._wrong_server()
        if wrong is not None:  # The last bytes of the handshake, with the own certificate, are not sent.
            self._fail(wrong)
            return False
        self._flush()
        self.is_open = True
        self._on_open(None)
        queued, self._queued = self._queued, []
        if queued:
            self._encrypt(queued)
        if self._closes_when_open:
            self.close()
        return not self._is_closing

    def _wrong_server(self) -> TlsError | None:
        """Return the error if the other side is no member of the cluster of the own certificate."""
        own, found = self._own.name, self.identity
        if found is not None and found.is_member and found.cluster == own.cluster:
            return None
        return TlsError(
            f"the certificate of {self.peer} names {found or 'no part of a cluster'}, and a member of cluster"
            f" {own.cluster} was expected; nothing was sent to it",
            remedy="correct the address; or use the certificate of the cluster that is meant",
        )

    def _ended_early(self, error: BaseException | None) -> BaseException | None:
        """Return the error for a connection that the other side, or the network, ended in the handshake."""
        if not self._is_server:
            # No TlsError, because a node that stops does this too, and then the next attempt may succeed.
            message = "the connection ended in the TLS handshake; a node without [tls] does that too"
            return ConnectionAbortedError(errno.ECONNABORTED, message)
        if not self._has_received:
            return error  # For example a program that only looks whether the port is open.
        return TlsError(
            f"{self.peer} ended the connection in the TLS handshake",
            remedy="look for the reason in the log of the other side: it may refuse the certificate of this node",
        )

    def _fail(self, error: TlsError) -> None:
        """End the connection, after the bytes that are on their way."""
        self._error = error
        self._is_closing = True
        self._inner.close()

    def _explain(self, error: ssl.SSLError) -> TlsError:
        """Return what an error of OpenSSL means for the user."""
        reason, clock = error.reason or "", shown_time(time.time())
        if isinstance(error, ssl.SSLCertVerificationError):
            detail, remedy = "", "both sides need certificates of an authority that is in [tls] authority of the other"
            if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
                valid = _validity_shown(self._tls)
                detail = f"; {valid}the clock of this machine says {clock}"
                remedy = "correct the clock that is wrong, or renew the certificate: `viewstamp tls new --renew`"
            return TlsError(
                f"the certificate of {self.peer} was refused: {error.verify_message}{detail}", remedy=remedy
            )
        if reason in _REFUSALS:
            own = self._own
            return TlsError(
                f"{self.peer} refuses the certificate of {own.name}: {_REFUSALS[reason]}; {own.files.certificate} is"
                f" valid {own.validity}, and the clock of this machine says {clock}",
                remedy="compare authority and clock of both sides; `viewstamp tls show` prints the certificate",
            )
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return TlsError(
                f"{self.peer} showed no certificate", remedy="give it one: set certificate and key as well as authority"
            )
        if reason in _NO_TLS:
            return TlsError(
                f"{self.peer} does not speak TLS", remedy="set [tls] on every node, or leave the TLS options out"
            )
        return TlsError(
            f"TLS with {self.peer} failed: {reason.lower().replace('_', ' ') or error}",
            remedy="check that both sides run TLS 1.2 or 1.3, and that no third process changes the bytes",
        )

    # Bytes.

    def _encrypt(self, buffers: Sequence[Buffer]) -> None:
        """Encrypt and send buffers. Small ones are joined, and large ones are not copied."""
        try:
            small: list[Buffer] = []
            for buffer in buffers:
                if len(buffer) < _COPIED_BYTES:
                    small.append(buffer)
                    continue
                if small:
                    self._write(b"".join(small))
                    small = []
                self._write(buffer)
            if small:
                self._write(small[0] if len(small) == 1 else b"".join(small))
        except ssl.SSLError as error:
            self._error = self._explain(error)
            self.abort()
            return
        self._flush()

    def _write(self, data: Buffer) -> None:
        if not data:
            return  # OpenSSL does not define what happens with no bytes.
        write, size = self._tls.write, len(data)
        done = write(data)
        while done < size:  # One call takes one record.
            done += write(memoryview(data)[done:])

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._inner.send((data,))


def _validity_shown(tls: ssl.SSLObject) -> str:
    """Return the validity of a certificate that was refused, as text; "" = OpenSSL does not give it away.

    The listening side of OpenSSL never does. Python has no public way to it before 3.13.
    """
    with suppress(AttributeError, ssl.SSLError, ValueError, KeyError, IndexError, TypeError):
        inside: Any = vars(tls)["_sslobj"]
        chain = inside.get_unverified_chain()
        return f"it is valid {_validity_of(chain[0].get_info())}, and "
    return ""
