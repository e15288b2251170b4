"""Both sides of the handshake, for all versions, clusters, names and incarnations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

from viewstamp.errors import FrameError, PeerError, RequestError, ViewstampError, WrongClusterError
from viewstamp.wire.frame import PROTOCOL_VERSION, Frame, FrameDecoder, FrameKind, encode_frame
from viewstamp.wire.handshake import NAME_MAX, Hello, Opening, Welcome, read_members

CHALLENGE = bytes(range(16))
LIMITS = {"record_bytes_max": 1000, "batch_bytes_max": 9000}


def decoded(kind: int, body: object) -> Frame:
    (frame,) = FrameDecoder().feed(b"".join(encode_frame(kind, body)))
    return frame


def opening(hello: Mapping[str, object], is_meant: Callable[[object], bool] | None = None) -> Opening:
    return Opening(hello, "n1", refused=lambda body: PeerError(str(body["message"])), is_meant=is_meant)


def error_of(work: Callable[[], object]) -> type[Exception] | None:
    try:
        work()
    except ViewstampError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("version", "cluster", "node", "incarnation"),
    [
        *product(
            [PROTOCOL_VERSION, 1, "2", None],
            ["c", "", "other", None],
            ["", "n2", "n2~00", "n" * (NAME_MAX + 1), None],
            ["", "disk", "d" * (NAME_MAX + 1), None],
        )
    ],
)
def test_a_node_takes_a_hello_or_refuses_it_by_the_first_rule_that_it_breaks(
    version: Any, cluster: Any, node: Any, incarnation: Any
) -> None:
    body = {"version": version, "cluster": cluster, "node": node, "incarnation": incarnation, "of a newer release": 1}
    expected: type[Exception] | None = None
    if None in (cluster, node, incarnation):
        expected = FrameError
    elif version != PROTOCOL_VERSION:
        expected = PeerError
    elif cluster == "other" or (node and not cluster):
        expected = WrongClusterError
    elif node and max(len(node), len(incarnation)) > NAME_MAX:
        expected = FrameError
    assert error_of(lambda: Hello.read(decoded(FrameKind.HELLO, body), "c")) is expected
    for name in body.keys() - {"of a newer release"}:
        lacking = {each: value for each, value in body.items() if each != name}
        assert error_of(lambda lacking=lacking: Hello.read(decoded(FrameKind.HELLO, lacking), "c")) is FrameError  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"challenge": CHALLENGE}, None),
        ({"challenge": CHALLENGE[1:]}, RequestError),
        ({"challenge": None}, RequestError),
        ({"node": "n2", "address": "a:1", "proof": b"p"}, None),
        ({"node": "n2", "address": None}, FrameError),
        ({"node": "n2", "proof": "p"}, FrameError),
        ({"address": 5, "proof": 5}, None),  # In a client's HELLO they have no meaning.
    ],
)
def test_the_other_fields_of_a_hello_are_checked_too(
    changes: dict[str, object], expected: type[Exception] | None
) -> None:
    body = {"version": PROTOCOL_VERSION, "cluster": "c", "node": "", "incarnation": "i", **changes}
    assert error_of(lambda: Hello.read(decoded(FrameKind.HELLO, body), "c")) is expected


def test_anything_else_in_the_place_of_a_hello_is_refused() -> None:
    for kind, body in ((FrameKind.STATUS, {"id": 1}), (FrameKind.HELLO, [1]), (FrameKind.HELLO, {})):
        assert error_of(lambda kind=kind, body=body: Hello.read(decoded(kind, body), "c")) is FrameError  # type: ignore[misc]


@pytest.mark.parametrize(
    "hello",
    [
        Hello(cluster=""),
        Hello(cluster="c", members=True),
        Hello(cluster="c", members=True, challenge=CHALLENGE),
        Hello(cluster="c", node="n2", incarnation="i", address=""),
        Hello(cluster="c", node="n2", incarnation="i", address="a:1", proof=b"p"),
    ],
)
def test_a_hello_is_read_as_it_was_sent(hello: Hello) -> None:
    assert Hello.read(decoded(FrameKind.HELLO, hello.to_map()), "c") == hello


def test_the_keys_and_their_order_are_those_that_have_always_been_sent() -> None:
    client = Hello(cluster="c", members=True, challenge=CHALLENGE)
    assert list(client.to_map()) == ["cluster", "node", "incarnation", "version", "members", "challenge"]
    peer = Hello(cluster="c", node="n2", incarnation="i", address="a:1", proof=b"p")
    assert list(peer.to_map()) == ["cluster", "node", "incarnation", "version", "address", "proof"]
    assert list(Hello(cluster="c", node="n2", incarnation="i", address="").to_map())[-1] == "address"
    told = {"members": {"n1": "a:1"}, "generation": 3}
    welcome = Welcome(cluster="c", node="n1", durability="sync", members=told, identity={"proof": None}, **LIMITS)
    assert list(welcome.to_map()) == [
        *("cluster", "node", "version", "durability", "limits", "members", "generation", "proof")
    ]
    assert welcome.to_map()["limits"] == LIMITS


@pytest.mark.parametrize(
    ("version", "cluster", "node", "asked", "wanted"),
    [*product([PROTOCOL_VERSION, 1], ["c", "other"], ["n1", "n9"], ["c", ""], [None, "n1"])],
)
def test_an_opener_takes_a_welcome_of_its_version_its_cluster_and_the_node_that_it_wants(
    version: int, cluster: str, node: str, asked: str, wanted: str | None
) -> None:
    side = opening(Hello(cluster=asked).to_map(), None if wanted is None else lambda found: found == wanted)
    sent = Welcome(cluster=cluster, node=node, durability="sync", **LIMITS).to_map() | {"version": version}
    expected: type[Exception] | None = None
    if version != PROTOCOL_VERSION:
        expected = PeerError
    elif (asked and cluster != asked) or (wanted and (node != wanted or cluster != asked)):
        expected = WrongClusterError
    assert error_of(lambda: side.receive(decoded(FrameKind.WELCOME, sent))) is expected
    assert (side.welcome is not None) == (expected is None)


def test_an_opener_sends_hello_and_takes_one_welcome() -> None:
    hello = Hello(cluster="c", members=True)
    side = opening(hello.to_map())
    (frame,) = FrameDecoder().feed(b"".join(side.frame))
    assert Hello.read(frame, "c") == hello
    assert not side.receive(decoded(FrameKind.OK, {"id": 1})), "an OK frame is not part of the handshake"
    welcome = Welcome(cluster="c", node="n1", durability="", identity={"proof": b"p"}, **LIMITS)
    assert side.receive(decoded(FrameKind.WELCOME, welcome.to_map()))
    assert side.welcome == welcome
    assert error_of(lambda: side.receive(decoded(FrameKind.WELCOME, welcome.to_map()))) is PeerError


def test_a_refused_opener_gets_the_reason() -> None:
    with pytest.raises(PeerError, match="no room"):
        opening(Hello(cluster="c").to_map()).receive(decoded(FrameKind.REFUSED, {"message": "no room"}))
    assert error_of(lambda: opening({"cluster": "c"}).receive(decoded(FrameKind.REFUSED, [1]))) is FrameError


@pytest.mark.parametrize("lost", ["cluster", "node", "version", "limits"])
def test_a_welcome_that_lacks_a_field_ends_the_connection(lost: str) -> None:
    body = Welcome(cluster="c", node="n1", durability="sync", **LIMITS).to_map()
    assert error_of(lambda: Welcome.read({**body, lost: []}, "n1")) is PeerError
    del body[lost]
    assert error_of(lambda: Welcome.read(body, "n1")) is PeerError


@pytest.mark.parametrize("told", [{"members": {"n1": 5}, "generation": 1}, {"members": {"n1": "a:1"}}, {"members": []}])
def test_members_are_ids_and_addresses_of_a_generation(told: dict[str, object]) -> None:
    assert error_of(lambda: read_members(told)) is PeerError
