"""Every row of the table of requests is handled, by clients' handlers, by peers', or as a JOIN."""

from viewstamp.node.service import FROM_CLIENTS, FROM_PEERS
from viewstamp.wire.requests import REQUESTS, AskToJoin

FOR_PEERS = {"READ_LOG", "READ_SNAPSHOT", "LIST_SNAPSHOTS"}


def test_every_request_has_a_handler_that_gets_what_its_row_decodes() -> None:
    """A row without a handler would be refused as unknown by the node that lists it."""
    assert set(FROM_CLIENTS) | set(FROM_PEERS) | {AskToJoin.kind} == set(REQUESTS)
    assert {REQUESTS[kind].kind.name for kind in FROM_PEERS} == FOR_PEERS
    assert {REQUESTS[kind].kind.name for kind in FROM_PEERS.keys() & FROM_CLIENTS.keys()} == {"LIST_SNAPSHOTS"}
    for table in (FROM_CLIENTS, FROM_PEERS):
        assert all(row is REQUESTS[kind] for kind, (row, _) in table.items())
