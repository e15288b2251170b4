"""Planted mistakes in the checks of the names in certificates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.host import tls
from viewstamp.host.tls import LoadedTls
from viewstamp.host.tls_stream import TlsStream
from viewstamp.ids import CertificateName, NodeId
from viewstamp.node.group import Group
from viewstamp.node.inbox import FromPeer
from viewstamp.node.peer_frames import PeerFrames, PeerSender
from viewstamp.node.peers.codec import decode_message
from viewstamp.node.server import _ServerConnection
from viewstamp.wire.frame import Frame, FrameKind
from viewstamp.wire.handshake import Hello, Opening

__all__ = ["TLS_MUTANTS"]

_check = Hello.check_certificate


def checked_as(**changed: Any) -> AbstractContextManager[None]:
    """Check another name than that in the certificate, so that one of the comparisons always holds."""

    def check_certificate(self: Hello, found: CertificateName | None, cluster: str, *, is_required: bool) -> None:
        if found is not None:
            fields: Mapping[str, Any] = {name: make(self, cluster) for name, make in changed.items()}
            found = found._replace(**fields)
        _check(self, found, cluster, is_required=is_required)

    return patched(Hello, check_certificate=check_certificate)


def peers_need_no_certificate() -> AbstractContextManager[None]:
    def check_certificate(self: Hello, found: CertificateName | None, cluster: str, *, is_required: bool) -> None:
        _check(self, found, cluster, is_required=False)

    return patched(Hello, check_certificate=check_certificate)


def clients_pass_for_peers() -> AbstractContextManager[None]:
    return checked_as(is_member=lambda hello, cluster: True)


def members_pass_for_each_other() -> AbstractContextManager[None]:
    return checked_as(name=lambda hello, cluster: str(hello.node).partition("~")[0])


def any_cluster_may_connect() -> AbstractContextManager[None]:
    return checked_as(cluster=lambda hello, cluster: cluster)


def any_server_is_right() -> AbstractContextManager[None]:
    return patched(TlsStream, _wrong_server=lambda self: None)


def answers_under_any_name() -> AbstractContextManager[None]:
    original = Opening.receive

    def receive(self: Opening, frame: Frame, certificate: CertificateName | None = None) -> bool:
        return original(self, frame)

    return patched(Opening, receive=receive)


def first_of_two_names() -> AbstractContextManager[None]:
    original = CertificateName.find

    def find(cls: type[CertificateName], uris: Iterable[str]) -> CertificateName | None:
        return original([uri for uri in uris if uri.startswith("viewstamp:")][:1])

    return patched(CertificateName, find=classmethod(find))


def renewed_for_another_node() -> AbstractContextManager[None]:
    def check_name(loaded: LoadedTls, expected: CertificateName) -> None:
        pass

    return everywhere(tls._check_name, check_name)


def clients_send_messages() -> AbstractContextManager[None]:
    original = _ServerConnection._on_request

    def on_request(self: _ServerConnection, frame: Frame) -> None:
        if frame.kind == FrameKind.PEER:
            parts = cast(Group, self.group).parts
            if parts is not None:  # ``Group.step`` checks the sender again.
                parts.ref.maybe_tell(FromPeer(decode_message(frame), self.refuse))
        elif frame.kind == FrameKind.JOIN:
            PeerFrames(self, PeerSender(NodeId(""), "", False, False), self.refuse, self._server.refuse)._on_join(frame)
        else:
            original(self, frame)

    return patched(_ServerConnection, _on_request=on_request)


TLS_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "peer-without-a-name",
            "a certificate that names no part of a cluster opens any connection",
            peers_need_no_certificate,
            rule="§10a",
        ),
        Mutant(
            "client-as-peer",
            "a client's certificate opens the connection of the member with the same name",
            clients_pass_for_peers,
            rule="§10a",
        ),
        Mutant(
            "member-as-another",
            "a member's certificate opens a connection of another member",
            members_pass_for_each_other,
            rule="§10a",
        ),
        Mutant(
            "certificate-of-any-cluster",
            "a certificate of another cluster is accepted",
            any_cluster_may_connect,
            rule="§10a",
        ),
        Mutant(
            "server-of-any-name",
            "requests are sent to a listening side that is no member of the cluster",
            any_server_is_right,
            rule="§10a",
        ),
        Mutant(
            "answer-under-any-name",
            "a node may answer under another name than that in its certificate",
            answers_under_any_name,
            rule="§10a",
        ),
        Mutant(
            "first-of-two-names",
            "of two names in a certificate the first one counts",
            first_of_two_names,
            rule="§10a",
        ),
        Mutant(
            "certificate-of-another-node",
            "a node starts with the certificate of another node, or changes to it",
            renewed_for_another_node,
            rule="§10a",
        ),
        Mutant(
            "client-sends-messages",
            "a node takes messages of consensus, and requests to join, on a connection of a client",
            clients_send_messages,
            rule="§10a",
        ),
    )
}
"""The mutants by name."""
