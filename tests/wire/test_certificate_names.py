"""The checks of the name in a certificate: which connection it may open, and the name with which a node may answer."""

from __future__ import annotations

import pytest

from viewstamp.errors import PeerError, TlsError
from viewstamp.ids import CertificateName
from viewstamp.wire.frame import Frame, FrameKind
from viewstamp.wire.handshake import Hello, Opening, Welcome

MEMBER = CertificateName("shop", True, "n1")
CLIENT = CertificateName("shop", False, "n1")


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["https://shop/member/n1"],
        ["viewstamp://shop/member/n1", "viewstamp://shop/client/alice"],
        ["viewstamp://shop/member/n1", "VIEWSTAMP://shop/member/n2"],
        ["viewstamp://shop/member/"],
        ["viewstamp://shop/member/n1/"],
        ["viewstamp://shop/member/n1\n"],
        ["viewstamp://shop/member/n1\0"],
        ["viewstamp:///member/n1"],
        ["viewstamp://shop/root/n1"],
        ["viewstamp://shop/Member/n1"],
        ["viewstamp://shop/member/n1~8c21f0aa"],
        ["viewstamp://shop@evil/member/n1"],
        ["viewstamp://shop/member/" + "n" * 65],
        ["viewstamp://shop/member/n\u0661"],
    ],
)
def test_a_certificate_without_exactly_one_well_formed_name_names_nothing(uris: list[str]) -> None:
    assert CertificateName.find(uris) is None


@pytest.mark.parametrize("name", [MEMBER, CLIENT, CertificateName("0" * 32, False, "a.b_c-d")])
def test_a_name_is_found_beside_other_uris(name: CertificateName) -> None:
    assert CertificateName.find(["https://example.org", str(name)]) == name


def hello(node: str) -> Hello:
    return Hello(cluster="shop", node=node, incarnation="x")


@pytest.mark.parametrize(
    ("found", "node"),
    [(MEMBER, "n1"), (MEMBER, "n1~8c21f0aa"), (MEMBER, ""), (CLIENT, ""), (CertificateName("shop", False, "bob"), "")],
)
def test_a_certificate_opens_what_it_names(found: CertificateName, node: str) -> None:
    hello(node).check_certificate(found, "shop", is_required=True)


@pytest.mark.parametrize(
    ("found", "node", "message"),
    [
        (None, "n1", "the certificate of n1 names no part of a cluster"),
        (None, "", "the certificate of a client names no part of a cluster"),
        (CLIENT, "n1", "is a client's certificate, and it opened the connection of a peer"),
        (CLIENT, "n1~8c21f0aa", "is a client's certificate, and it opened the connection of a peer"),
        (CLIENT, "n9", "is a client's certificate, and it opened the connection of a peer"),
        (MEMBER, "n2", "is not the certificate of n2, which opened the connection"),
        (MEMBER, "n2~n1", "is not the certificate of n2~n1, which opened the connection"),
        (MEMBER, "n11", "is not the certificate of n11, which opened the connection"),
        (CertificateName("other", True, "n1"), "n1", "is a certificate of another cluster than this one, shop"),
        (CertificateName("other", False, "n1"), "", "is a certificate of another cluster than this one, shop"),
    ],
)
def test_another_certificate_is_refused(found: CertificateName | None, node: str, message: str) -> None:
    with pytest.raises(TlsError) as caught:
        hello(node).check_certificate(found, "shop", is_required=True)
    assert message in caught.value.message
    assert isinstance(caught.value, PeerError)


def test_without_tls_no_certificate_is_needed() -> None:
    hello("n1").check_certificate(None, "shop", is_required=False)


def welcome(node: str, cluster: str = "shop") -> Frame:
    body = Welcome(cluster=cluster, node=node, durability="", record_bytes_max=1, batch_bytes_max=1).to_map()
    return Frame(FrameKind.WELCOME, body, memoryview(b""))


def opening(cluster: str = "shop") -> Opening:
    return Opening(Hello(cluster=cluster).to_map(), "n1", refused=lambda _: PeerError("refused"))


@pytest.mark.parametrize("node", ["n1", "n1~8c21f0aa"])
def test_a_node_answers_under_the_name_in_its_certificate(node: str) -> None:
    assert opening().receive(welcome(node), MEMBER)
    assert opening().receive(welcome(node))


@pytest.mark.parametrize(
    ("found", "node", "cluster"),
    [
        (MEMBER, "n2", "shop"),
        (CLIENT, "n1", "shop"),
        (CertificateName("other", True, "n1"), "n1", "shop"),
        (MEMBER, "n1", "other"),
    ],
)
def test_an_answer_under_another_name_is_refused(found: CertificateName, node: str, cluster: str) -> None:
    opened = opening("")
    with pytest.raises(TlsError, match="answers as"):
        opened.receive(welcome(node, cluster), found)
    assert opened.welcome is None
