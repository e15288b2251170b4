"""The sequence diagrams of the pages."""

from __future__ import annotations

from docs.pictures.sequence import Diagram, Message, Note

__all__ = ["SCENES"]

SCENES = {
    "append": Diagram(
        title="An append on three nodes",
        description=(
            "The client sends the batch to the leader. The leader stamps it, sends it to both followers and writes it. "
            "One follower has written and synced it and answers. The leader has synced it too, so a majority holds it: "
            "it is committed, applied and answered. The second follower is slow, and nothing waits for it."
        ),
        participants=("client", "leader n1", "follower n2", "follower n3"),
        spacing=172,
        steps=[
            Message("client", "leader n1", "append: session 7, sequence 12"),
            Note(("leader n1",), "term 3, index 40"),
            Message("leader n1", "follower n2", "AppendRequest"),
            Message("leader n1", "follower n3", "AppendRequest (slow)"),
            Note(("leader n1", "follower n2"), "each writes the batch and syncs"),
            Message("follower n2", "leader n1", "AppendResponse: end 41"),
            Note(("leader n1",), "two of three: committed, applied"),
            Message("leader n1", "client", "receipt: position 17"),
            Message("leader n1", "follower n2", "heartbeat: commit 41"),
            Note(("follower n3",), "writes and syncs later"),
            Message("follower n3", "leader n1", "AppendResponse: end 41"),
        ],
    ),
    "failover": Diagram(
        title="A failover",
        description=(
            "The leader's process dies after it stored a batch that one follower has. The other nodes notice closed "
            "connections. One asks for pre-votes, then for votes, and leads. It announces its history, appends the "
            "membership record, and the client's repeated request is recognised and answered once."
        ),
        participants=("client", "leader n1", "follower n2", "follower n3"),
        spacing=172,
        steps=[
            Message("client", "leader n1", "append: session 7, sequence 13"),
            Message("leader n1", "follower n2", "AppendRequest: index 41"),
            Note(("leader n1",), "SIGKILL"),
            Note(("follower n2", "follower n3"), "the connection to n1 ends and n1 refuses a new one"),
            Message("follower n2", "follower n3", "PreVoteRequest: (3, 42)"),
            Message("follower n3", "follower n2", "PreVoteResponse: granted"),
            Note(("follower n2",), "syncs term 4 and its vote"),
            Message("follower n2", "follower n3", "VoteRequest: (3, 42)"),
            Note(("follower n3",), "syncs its log, then term 4 and its vote"),
            Message("follower n3", "follower n2", "VoteResponse: granted, end 41"),
            Note(("follower n2",), "leads; stores (term 4, index 42)"),
            Message("follower n2", "follower n3", "Announcement: start at 41"),
            Message("follower n2", "follower n3", "AppendRequest: 41, membership record"),
            Message("follower n3", "follower n2", "AppendResponse: end 43"),
            Message("client", "follower n2", "the same request: session 7, sequence 13"),
            Note(("follower n2",), "sequence 13 is in the log already"),
            Message("follower n2", "client", "receipt: position 18"),
        ],
    ),
    "snapshot": Diagram(
        title="A snapshot transfer",
        description=(
            "A member that was away needs records that the leader's log no longer has. The leader offers its base "
            "snapshot, the member fetches it in pieces over a connection of its own, verifies and syncs it, marks it "
            "as being installed and renames it, "
            "resets its log, stores the history, and then receives the log behind the snapshot as usual."
        ),
        participants=("leader", "member", "member's disk"),
        spacing=230,
        steps=[
            Message("member", "leader", "HistoryResponse: my log ends at 200"),
            Note(("leader",), "the log begins at 650"),
            Message("leader", "member", "SnapshotOffer: base snapshot, end 700"),
            Message("member", "leader", "fetch piece 1 (a connection of its own)"),
            Message("leader", "member", "piece 1, with its checksum"),
            Note(
                ("leader", "member"),
                "a broken transfer continues after the last whole piece; appends go on",
            ),
            Message("member", "member's disk", "1. verify and sync the file"),
            Message("member", "member's disk", "2. mark 700 as being installed; rename the file"),
            Message("member", "member's disk", "3. reset the log: empty, begins at 700"),
            Message("member", "member's disk", "4. store the term history; clear the mark"),
            Message("member", "leader", "HistoryResponse: my log ends at 700"),
            Message("leader", "member", "Announcement, then AppendRequests from 700 on"),
        ],
    ),
    "sink": Diagram(
        title="A sink's commit",
        description=(
            "Two writers stage records under attempts of their own and seal them. The committer names both attempts in "
            "one COMMIT record. Readers see nothing before that record is committed and all of it after. A repeated "
            "commit is answered as a duplicate."
        ),
        participants=("writer A", "writer B", "committer", "cluster", "reader"),
        spacing=150,
        steps=[
            Message("writer A", "cluster", "begin batch 7: attempt 1"),
            Message("writer B", "cluster", "begin batch 7: attempt 2"),
            Message("writer A", "cluster", "stage records"),
            Message("writer B", "cluster", "stage records"),
            Message("reader", "cluster", "read: nothing of batch 7"),
            Message("writer A", "cluster", "seal: on the disks of a majority"),
            Message("writer B", "cluster", "seal: on the disks of a majority"),
            Note(("writer A", "writer B", "committer"), "each writer gives its Sealed value to the committer"),
            Message("committer", "cluster", "commit batch 7"),
            Note(("cluster",), "one COMMIT record: positions"),
            Message("cluster", "committer", "the answer is lost", is_lost=True),
            Message("reader", "cluster", "read: all of batch 7"),
            Message("committer", "cluster", "commit batch 7"),
            Message("cluster", "committer", "duplicate: committed"),
        ],
    ),
}
"""Each diagram by the name of its file, without ``.svg``."""
