"""The handshake of a connection, for clients, peers and nodes alike. Pure: frames in, frames or errors out.

| frame   | from → to     | body |
| ------- | ------------- | ---- |
| HELLO   | opener → node | :class:`Hello` |
| WELCOME | node → opener | :class:`Welcome` |
| REFUSED | node → opener | error, message, remedy, as in ERROR; then the connection ends |
| MEMBERS | node → client | members {id: address}, generation: sent when they change, to clients that want it |

A connection belongs to one group, which its HELLO names. A HELLO for another group than 0 has a version of its own,
because releases without groups would ignore the field; WELCOME has the same version for all groups.

A node checks a HELLO in this order: its shape, the protocol version, the cluster, the challenge, and for a peer its
names (:meth:`Hello.read`); the name in the certificate (:meth:`Hello.check_certificate`); then whether it may connect
(``node/peers/pool.py``), and whether there is room for it (``node/crowd.py``). An opener checks a WELCOME for the
version, the cluster, the name in the certificate and, if it is a peer, for the node (:class:`Opening`). A client that
expects a certain directory also compares the proofs (``wire/identity_proof.py``). Incarnations are sent from peer to
peer only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from viewstamp.errors import FrameError, PeerError, RequestError, TlsError, ViewstampError, WrongClusterError
from viewstamp.ids import GROUP_0, CertificateName, GroupId, name_of
from viewstamp.wire.batch import Buffer
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import GROUPS_VERSION, PROTOCOL_VERSION, Frame, FrameKind, encode_frame
from viewstamp.wire.identity_proof import CHALLENGE_BYTES, IDENTITY_FIELDS

__all__ = ["NAME_MAX", "Hello", "Opening", "Welcome", "read_members"]

NAME_MAX = 256
"""Characters of the id and of the incarnation of a peer."""
_SAME_RELEASE = "run the same release on both sides"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The HELLO frame, by which the opener of a connection introduces itself. Default values are not sent."""

    cluster: str
    """Its cluster; "" = a client that takes any."""
    node: str = ""
    """A peer's id; "" = a client."""
    incarnation: str = ""
    """A peer's disk."""
    members: bool = False
    """A client wants MEMBERS."""
    challenge: bytes = b""
    """16 random bytes, which WELCOME answers with ``proof``."""
    address: str | None = None
    """The address on which a peer listens; "" = the peer is repairing itself and only requests lost records.

    A member that repairs itself accepts such a peer too, and can send the records that it still has.
    """
    proof: bytes | None = None
    """``hello_proof`` of a peer that knows the incarnation of the node.

    It belongs to the group by a membership record that the node may lack.
    """
    token: str = field(default="", repr=False)
    """The text of a client's token (``wire/access.py``). It is secret: no message may contain it."""
    proves: bool = False
    """A client wants a challenge in WELCOME, because it can read the data directory of a member."""
    group: GroupId = GROUP_0
    """The group to which all messages of the connection belong."""

    def to_map(self) -> dict[str, object]:
        """Return the body of HELLO."""
        body: dict[str, object] = {
            "cluster": self.cluster,
            "node": self.node,
            "incarnation": self.incarnation,
            "version": GROUPS_VERSION if self.group else PROTOCOL_VERSION,
        }
        if self.members:
            body["members"] = True
        if self.challenge:
            body["challenge"] = self.challenge
        if self.address is not None:
            body["address"] = self.address
        if self.proof is not None:
            body["proof"] = self.proof
        if self.token:
            body["token"] = self.token
        if self.proves:
            body["proves"] = True
        if self.group:
            body["group"] = self.group
        return body

    @classmethod
    def read(cls, frame: Frame, cluster: str) -> Hello:
        """Read and check the first frame of a connection to a node of ``cluster``.

        Raises:
          FrameError: it is no HELLO, or a field of it has a wrong type.
          PeerError: another version of the protocol.
          WrongClusterError: another cluster, or a peer that names none.
          RequestError: the challenge is not 16 bytes.
        """
        if frame.kind != FrameKind.HELLO:
            raise FrameError("the first frame of a connection must be HELLO")
        body: Any = frame.body
        if not isinstance(body, dict) or not {"version", "cluster", "node", "incarnation"} <= body.keys():
            raise FrameError("a HELLO without version, cluster, node or incarnation")
        if not all(isinstance(body[name], str) for name in ("cluster", "node", "incarnation")):
            raise FrameError("a HELLO whose cluster, node or incarnation is not text")
        group = body.get("group", 0)
        if type(group) is not int or group < 0:
            raise FrameError("a HELLO whose group is no number")
        if body["version"] != (GROUPS_VERSION if group else PROTOCOL_VERSION):
            raise PeerError(
                f"the other side speaks protocol version {brief_repr(body['version'])}, this node {PROTOCOL_VERSION}",
                remedy=_SAME_RELEASE,
            )
        if body["cluster"] not in ("", cluster):
            raise WrongClusterError(
                f"this node belongs to cluster {cluster}, not to {body['cluster'][:NAME_MAX]}",
                remedy="check the address, and [cluster] id in the settings of the other side",
            )
        challenge = body.get("challenge", b"")
        if "challenge" in body and (type(challenge) is not bytes or len(challenge) != CHALLENGE_BYTES):
            raise RequestError(
                f"a challenge has {CHALLENGE_BYTES} random bytes; it is {brief_repr(challenge)}",
                remedy=_SAME_RELEASE,
            )
        token = body.get("token", "")
        if not isinstance(token, str):
            raise FrameError("a HELLO whose token is not text")
        address, proof = body.get("address", ""), body.get("proof", b"")
        if body["node"]:
            if body["cluster"] == "":
                raise WrongClusterError("a peer must name its cluster", remedy="set [cluster] id")
            if max(len(body["node"]), len(body["incarnation"])) > NAME_MAX:
                raise FrameError(f"a HELLO with a name of more than {NAME_MAX} characters")
            if not isinstance(address, str) or not isinstance(proof, bytes):
                raise FrameError("a HELLO whose address is not text, or whose proof is not bytes")
        return cls(
            cluster=body["cluster"],
            node=body["node"],
            incarnation=body["incarnation"],
            members=body.get("members") is True,
            challenge=challenge,
            address=address if body["node"] else None,
            proof=body.get("proof") if body["node"] else None,
            token=token,
            proves=body.get("proves") is True,
            group=GroupId(group),
        )

    def check_certificate(self, found: CertificateName | None, cluster: str, *, is_required: bool) -> None:
        """Check that the opener is the part of ``cluster`` that its certificate names.

        A peer needs the certificate of the member whose id it gives. A client may have a client's or a member's.

        Args:
          found: the name in the certificate; None = there is no certificate, or it names no part of a cluster.
          cluster: the cluster of this node.
          is_required: whether connections have TLS.

        Raises:
          TlsError: it is another part, or none.
        """
        if found is None:
            if is_required:
                raise _wrong_certificate(f"the certificate of {self.node or 'a client'} names no part of a cluster")
            return
        if found.cluster != cluster:
            raise _wrong_certificate(f"{found} is a certificate of another cluster than this one, {cluster}")
        if self.node and not found.is_member:
            raise _wrong_certificate(f"{found} is a client's certificate, and it opened the connection of a peer")
        if self.node and found.name != name_of(self.node):
            raise _wrong_certificate(f"{found} is not the certificate of {self.node}, which opened the connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The WELCOME frame, in which a node introduces itself."""

    cluster: str
    node: str
    durability: str
    """The node's mode of durability; "" = unknown."""
    record_bytes_max: int
    batch_bytes_max: int
    members: Mapping[str, object] | None = None
    """``members`` and ``generation`` as MEMBERS has them, to clients."""
    identity: Mapping[str, object] = field(default_factory=dict)
    """The answer to the challenge (``identity_fields`` in ``wire/identity_proof.py``); {} = there was none."""
    challenge: bytes = b""
    """Random bytes of this connection, for ``ProveDirectory``; b"" = the client did not ask for them."""
    takes_beats: bool = False
    """Whether the node reads BEATS frames on this connection; only said in other groups than 0."""
    takes_notices: bool = False
    """Whether the node reads the message DurableNotice; only said to peers."""
    kinds: int = 0
    """The highest number of a kind of record that the node can read; 0 = a release before runs, which does not say."""

    def to_map(self) -> dict[str, object]:
        """Return the body of WELCOME."""
        return {
            "cluster": self.cluster,
            "node": self.node,
            "version": PROTOCOL_VERSION,
            "durability": self.durability,
            "limits": {"record_bytes_max": self.record_bytes_max, "batch_bytes_max": self.batch_bytes_max},
            **(self.members or {}),
            **self.identity,
            **({"challenge": self.challenge} if self.challenge else {}),
            **({"takes_beats": True} if self.takes_beats else {}),
            **({"takes_notices": True} if self.takes_notices else {}),
            **({"kinds": self.kinds} if self.kinds else {}),
        }

    @classmethod
    def read(cls, body: Mapping[str, Any], other: str) -> Welcome:
        """Read the body of a WELCOME that ``other`` sent.

        Raises:
          PeerError: another version of the protocol, or a field is missing or has a wrong type.
        """
        if body.get("version") != PROTOCOL_VERSION:
            raise PeerError(
                f"{other} speaks version {brief_repr(body.get('version'))} of the protocol, this side"
                f" {PROTOCOL_VERSION}",
                remedy="run compatible releases on both sides",
            )
        limits: Any = body.get("limits")
        limits = limits if isinstance(limits, dict) else {}
        names = body.get("cluster"), body.get("node"), body.get("durability", "")
        sizes = limits.get("record_bytes_max"), limits.get("batch_bytes_max")
        if not all(isinstance(name, str) for name in names) or not all(type(size) is int for size in sizes):
            raise PeerError(f"{other} sent a malformed WELCOME: {brief_repr(body)}")
        members: dict[str, object] | None = None
        if "members" in body:
            named, generation = read_members(body)
            members = {"members": named, "generation": generation}
        return cls(
            cluster=body["cluster"],
            node=body["node"],
            durability=body.get("durability", ""),
            record_bytes_max=limits["record_bytes_max"],
            batch_bytes_max=limits["batch_bytes_max"],
            members=members,
            identity={name: body[name] for name in IDENTITY_FIELDS if name in body},
            challenge=challenge if isinstance(challenge := body.get("challenge"), bytes) else b"",
            takes_beats=body.get("takes_beats") is True,
            takes_notices=body.get("takes_notices") is True,
            kinds=kinds if type(kinds := body.get("kinds")) is int else 0,
        )


class Opening:
    """The opener's side of the handshake of one connection: send :attr:`frame`, then feed the received frames."""

    def __init__(
        self,
        hello: Mapping[str, object],
        other: str,
        *,
        refused: Callable[[Mapping[str, Any]], ViewstampError],
        is_meant: Callable[[object], bool] | None = None,
    ) -> None:
        """Open a connection.

        Args:
          hello: the body of HELLO.
          other: how errors call the other side.
          refused: the error that a REFUSED stands for.
          is_meant: whether a node of this id is the one that the connection is for; None = any node of the cluster.
        """
        self._hello = hello
        self._other = other
        self._refused = refused
        self._is_meant = is_meant
        self.welcome: Welcome | None = None
        """The node's WELCOME; None = not received yet."""

    @property
    def frame(self) -> list[Buffer]:
        """The HELLO to send."""
        return encode_frame(FrameKind.HELLO, self._hello)

    def receive(self, frame: Frame, certificate: CertificateName | None = None) -> bool:
        """Process a frame; return whether it is part of the handshake.

        ``certificate`` is the name in the certificate of the other side; None = the connection has no TLS.

        Raises:
          WrongClusterError: the node belongs to another cluster, or is not the expected node.
          TlsError: the certificate names another node than the one that answers.
          PeerError: the frame cannot be read, has another version, or is a second WELCOME.
          ViewstampError: the node refuses the connection, with this error.
        """
        if frame.kind != FrameKind.WELCOME and frame.kind != FrameKind.REFUSED:
            return False
        if not isinstance(frame.body, dict):
            raise FrameError(
                f"{self._other} sent a frame of kind {frame.kind} that is no map: {brief_repr(frame.body)}"
            )
        if frame.kind == FrameKind.REFUSED:
            raise self._refused(frame.body)
        if self.welcome is not None:
            raise PeerError(f"{self._other} sent a second WELCOME")
        welcome = Welcome.read(frame.body, self._other)
        cluster = self._hello["cluster"]
        if self._is_meant is not None and (welcome.cluster != cluster or not self._is_meant(welcome.node)):
            raise WrongClusterError(
                f"expected {self._other} of cluster {cluster},"
                f" found {brief_repr(welcome.node)} of {brief_repr(welcome.cluster)}",
                remedy="correct the address of the member in [cluster] members",
            )
        if cluster and welcome.cluster != cluster:
            raise WrongClusterError(
                f"{self._other} belongs to cluster {welcome.cluster!r}, not {cluster!r}",
                remedy="check the addresses: all of them must be nodes of one cluster",
            )
        if certificate is not None and certificate != (welcome.cluster, True, name_of(welcome.node)):
            raise _wrong_certificate(
                f"{self._other} answers as {brief_repr(welcome.node)} of {brief_repr(welcome.cluster)} with the"
                f" certificate of {certificate}"
            )
        self.welcome = welcome
        return True


def _wrong_certificate(message: str) -> TlsError:
    return TlsError(message, remedy="give each node and each client its own certificate: `viewstamp tls show FILE`")


def read_members(body: Mapping[str, Any]) -> tuple[dict[str, str], int]:
    """Return the members (id to address) and their generation of a MEMBERS, or of a frame that has them too.

    Raises:
      PeerError: they are something else.
    """
    members: Any = body.get("members")
    generation: Any = body.get("generation")
    is_map = isinstance(members, dict) and isinstance(generation, int)
    if is_map and all(isinstance(each, str) for pair in members.items() for each in pair):
        return members, generation
    raise PeerError(
        f"a node names the members {brief_repr(members)} of generation {brief_repr(generation)}, not ids and addresses"
    )
