"""TLS over any connection. Uses neither an event loop nor sockets.

``TlsStream`` takes encrypted bytes from the connection below it and hands decrypted bytes to its handler. The networks
of asyncio (``tls_network.py``) and of trio (``viewstamp/trio/network.py``) use it.

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

Limits
------
The owner of a listening connection gets it before the handshake, so that its limits of time and number hold for
handshakes too (``node/crowd.py``). OpenSSL limits the size of handshake messages.
"""

from __future__ import annotations

import errno
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from viewstamp.errors import TlsError
from viewstamp.host.interfaces import Buffer, ConnectionHandler
from viewstamp.host.tls import LoadedTls, shown_time, validity_of
from viewstamp.ids import CertificateName

__all__ = ["TlsStream"]

_RECORD_BYTES: Final = 16 * 1024
"""The most that one record of TLS holds, and so the most that one call of OpenSSL encrypts or decrypts."""
_COPIED_BYTES: Final = 4096
"""Buffers below this size are joined, because a record of its own costs more than a copy of the bytes."""
_HANDSHAKE_BYTE: Final = 0x16
"""The first byte of every TLS connection. A frame of viewstamp begins with another one."""
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
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
        """Return the error for the user that an error of OpenSSL stands for."""
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
        return f"it is valid {validity_of(chain[0].get_info())}, and "
    return ""
