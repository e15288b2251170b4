"""Each row of the request table has a handler: the clients', the peers', or one of the frames without an answer."""

from viewstamp.node.service import FROM_CLIENTS, FROM_PEERS
from viewstamp.wire.peer_requests import AskToJoin, ReportHosted, ReportLeft, ReportStreams
from viewstamp.wire.requests import REQUESTS
from viewstamp.wire.token_requests import ProveDirectory

FOR_PEERS = {"READ_LOG", "READ_SNAPSHOT", "LIST_SNAPSHOTS"}


def test_every_request_has_a_handler_for_its_decoded_row() -> None:
    """A node would refuse a request without a handler as unknown, although its table lists it."""
    others = {AskToJoin.kind, ProveDirectory.kind, ReportHosted.kind, ReportLeft.kind, ReportStreams.kind}
    assert set(FROM_CLIENTS) | set(FROM_PEERS) | others == set(REQUESTS)
    assert {REQUESTS[kind].kind.name for kind in FROM_PEERS} == FOR_PEERS
    assert {REQUESTS[kind].kind.name for kind in FROM_PEERS.keys() & FROM_CLIENTS.keys()} == {"LIST_SNAPSHOTS"}
    for table in (FROM_CLIENTS, FROM_PEERS):
        assert all(row is REQUESTS[kind] for kind, (row, _) in table.items())
