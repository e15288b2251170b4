"""One group of members with one log in one order: the consensus protocol, as a pure and synchronous core.

This text is the specification of the core. ``docs/protocol.md`` presents the same protocol as a story, with the
messages and the table of which role handles which of them.

The core has the inputs ``tick``, ``step(message)``, ``propose(batch)``, ``read(token)`` and ``durable(viewstamp)``;
``change(membership)``, ``transfer(member)`` and ``note_incarnation(member, disk)``; ``begin_turn(uptime)`` for leases;
``lost_leader(member)``, a hint that may be wrong; ``install(snapshot)`` and ``trimmed(first_index)`` for a log that
does not begin at 1. It has one output, :class:`~viewstamp.consensus.ready.Ready`. It never awaits and owns no clock,
disk, socket, thread or randomness. Its owner steps all messages that have arrived, takes one Ready and carries it out.
``quiet_ticks`` returns how many ticks may pass as one.

Promises to an owner that carries out each Ready in order
  * **One leader a term.** Term and vote are one durable write before a vote is sent, a member syncs its log before it
    votes, and no member leads or campaigns in a term that it found on its disk.
  * **Committed records stay**, are the same on every member, and are handed out once, in order.
  * **Messages promise only durable state.** An acknowledged end, a vote and a reported history are on the disk, under
    the announcement in whose name they are sent. Only requests are sent before the writes of their own Ready.
  * **A member never cuts below its own commit end.** (This does not mean that no copy of a committed record is ever
    cut. With five members a minority may hold a copy that an older leader lawfully cuts; the quorum's copies win.)
  * **A read returns** everything that was committed when it was requested, on any member.
  * **Bounds** hold for the bytes in flight to each member, uncommitted bytes, one stashed request of each kind from
    each member, one read from disk for each member, and the memory of batches that are applied and durable.

Assumptions
  * Messages may be lost, doubled, delayed and reordered, but not changed, because frames carry checksums. They come
    from members of this cluster, in the incarnation that they name, because the handshake of the connection refuses
    others.
  * Writes become durable in the order in which they were handed out, and ``durable`` is called for each Ready that
    waits for its writes, in that order. A failed write ends the node; it is never repeated.
  * The log on disk reaches back to the end of the offered snapshot, which holds the state of all earlier records.
  * Durable data stays, or the loss is noticed: a member whose disk lost a part of its log is started with the pair
    that it had advertised (``Stored.recovering_until``); one that lost its term and vote comes back as another member.
  * ``Stored`` is the *synced* content of the disk: recovery syncs the files that it found before it starts a core.

State, and the order of its cursors
  * ``handed_end <= commit_end <= end`` and ``durable_end <= end``, all of them batch boundaries, all exclusive.
    ``commit_end <= durable_end`` does not hold on one member, because a quorum may commit without its disk.
  * ``history``: (term, begin) for every term the log has been led in. It may run ahead of the log. The *advertised*
    history is computed: the entries with ``begin <= durable_end``, the boundary included. Votes compare the advertised
    pair (last term, durable end).
  * ``accept_term``: the leadership under which the newest batches were accepted. ``durable`` notices of another one are
    dropped, because the same record can be cut and written again, and the completion of the first write must not
    acknowledge the second.
  * ``announced_number``: the number of the accepted announcement of this term; 0 = none since this process began.
  * ``installing``: from accepting an announcement or a snapshot, or winning, until its writes are durable, a member
    answers nothing. The completion of those writes ends it (``completions_left``), not an earlier one of the term.
  * ``recovering_until``: the pair to be regained before messages of this member count; None = they count.
  * ``first_index``: the first index of the log on disk; ``history`` describes it from there on, and the record before.
  * ``state``: a ``Following``, a ``Campaign`` or a ``Leading``, replaced as a whole at each change of role or term.

The rules in short (numbers: protocol rules; each has its tests in ``tests/consensus``)
  * **Advertise and commit are a pair** (1, 7). Because the advertised history includes its boundary, a quorum that
    has *reached* the leader's term start commits everything up to its end, records of old terms included, without a
    record of the own term. Reached means: durable to there, and acknowledged after the member durably accepted this
    term's announcement. Ends in vote responses never count. Neither half is safe with the other half of plain Raft.
  * **The winner extends its advertised history** (3), durably, and only then announces.
  * **The common point** of two logs is at the highest term present in both histories (4): the smaller of the two ends
    of that term. Leader and member compute it independently; the member from its own present state. A difference is
    refused, harmlessly; a point below the own commit end is fatal.
  * **An announcement is three durable steps in one order** (5): term, truncation, history. Meanwhile the member answers
    nothing.
  * **Appends** are accepted only under the accepted announcement, only exactly at the end (6). An append before the end
    is answered with the end. One beyond it is rejected with the end, and the leader probes from there, one append at a
    time.
  * **The commit end** of a leader is adopted under the announcement only, as far as the own log reaches, and never
    moves back (8).
  * **A leader that steps down keeps its tail** (10); only an announcement cuts it. Cut is not "did not happen" (12).
  * **Pre-vote and check-quorum together** (13): a member with a live leader gives no votes; a leader without answers of
    a quorum steps down; a request of a lower term is always answered with the present one.
  * **Members do not wait for a leader that seems dead**: after ``lost_leader`` a member gives its votes to others,
    and the voters campaign one after the other, by pre-vote as always. Only a wait is shorter; see
    ``docs/design/0005``.
  * **Timeouts adapt**: twice the longest delay of the last moments, from the setting up to ten times that. So a network
    with round trips longer than the setting costs a few terms and then keeps a leader; ``docs/design/0010``.
  * **A snapshot** (19) is offered if no common point is at or behind the log's begin; it is installed with no write
    under way, the log reset first and the history stored then. At or below the own commit end it is ignored.
  * **The rules of counting** are in :mod:`~viewstamp.consensus.standing` and nowhere else: majorities, plain and joint,
    which members may vote and campaign, and which votes and ends count (14, 15, 17, 18). Node repair and the offline
    replay call them too.
  * **Learners** acknowledge, read and answer votes; they never count (14).
  * **A member with a damaged disk is recovering** (17). It accepts batches and answers its leader; its ends, its
    heartbeats for reads and its vote do not count until its durable pair is at least the one from before the damage,
    and the end of its recovery is durable.
  * **The membership** in the newest membership record of the log is in force, committed or not (15). Each new leader
    replicates the one it finds as its first record; RUNNING means that this record is committed. A change of voters is
    joint: two records, and both majorities in between. One change at a time, and only by a leader that is RUNNING.
  * **Disks have names** (18). The membership names the disk of each member that was met; messages of a disk that no
    record names count nowhere. If the owner names none (``Raft.note_incarnation``), all count.
  * **Leases** are off by default. With them a member elects no other leader for a time after each message of its
    leader, and that leader answers reads without a round meanwhile; see ``lease`` and ``docs/design/0018``.
  * **Leadership moves** by ``TimeoutNow``, to a member that holds everything; its vote requests pass check-quorum.

Files
  ``raft``: the inputs, the one output, and the table of which function handles which message. ``state``: the stored
  state and the state that every role has, with one value for the state of the present role. ``follower`` ``candidate``
  ``leader`` ``lease`` ``reads`` ``reconfigure``: the decisions, as functions of that state. ``quiet``: how many ticks
  pass until the next decision is due. ``standing``: which members, votes and ends count. ``invariants``: the
  invariants, as functions that tests and simulator call. ``log`` ``term_history`` ``membership`` ``progress``
  ``patience`` ``messages`` ``ready`` ``roles``: values without decisions, except the arithmetic of histories.

Deliberately left out, and the alternative
  * fetching a longer log from a voter before leading, as Neon and VR do: votes compare pairs instead
"""
