import pytest

from viewstamp.consensus.membership import Membership
from viewstamp.errors import PeerError
from viewstamp.ids import NodeId


def test_a_membership_survives_its_record() -> None:
    membership = Membership({NodeId("b"): "1:1", NodeId("a"): "2:2"}, {NodeId("c"): "3:3"}, 7)
    assert Membership.decode(membership.encode()) == membership
    assert list(membership.addresses) == ["a", "b", "c"]


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"voters": 3, "learners": {}, "generation": 0}', b"\xff"])
def test_an_invalid_membership_is_refused(value: bytes) -> None:
    with pytest.raises(PeerError, match="no membership record"):
        Membership.decode(value)
