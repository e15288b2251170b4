"""One group of members, one log, one order: the protocol, as a pure and synchronous core.

This text is the specification of the core. ``docs/protocol.md`` tells the same as a story, with the messages and the
table of which role handles which of them.

The core has the inputs ``tick``, ``step(message)``, ``propose(batch)``, ``read(token)``, ``durable(viewstamp)``;
``change(membership)``, ``transfer(member)`` and ``note_incarnation(member, disk)``; ``lost_leader(member)``, which may
be wrong; ``install(snapshot)`` and ``trimmed(first_index)`` for a log that does not begin at 1; and one output,
:class:`~viewstamp.consensus.ready.Ready`. It never awaits and owns no clock, disk, socket, thread or
randomness. Its owner steps everything that has arrived, takes one Ready and does as it says. ``quiet_ticks`` tells it
how many ticks may pass as one.

What it promises, to an owner that keeps to the Ready
  * **One leader a term.** Term and vote are one durable write before a vote is sent, a member syncs its log before it
    votes, and no member leads or stands in a term that it found on its disk.
  * **What is committed stays**, is the same on every member, and is handed out once, in order.
  * **Messages promise only what is durable.** An acknowledged end, a vote and a reported history are on the disk, under
    the announcement in whose name they are sent. Only requests are sent before the writes of their own Ready.
  * **A member never cuts below its own commit end.** (Not: "a committed record is cut nowhere". With five members a
    minority may hold a copy that an older leader lawfully cuts; the quorum's copies win.)
  * **A read returns** everything that was committed when it was asked, on any member.
  * **Bounds**: bytes in flight to each member, uncommitted bytes, one stashed request of each kind from each member,
    one read from disk for each member, the memory of what is applied and durable.

What it assumes
  * Messages may be lost, doubled, delayed and reordered, but not changed, because frames carry checksums. They come
    from members of this cluster, in the incarnation that they name: the handshake of the connection refuses others.
  * Writes become durable in the order in which they were handed out, and ``durable`` is called for each Ready that
    waits for that, in that order. A failed write ends the node; it is never repeated.
  * The log on disk reaches back to the end of the snapshot that is offered, whose state is all that was before.
  * What is durable stays, or the loss is noticed: a member whose disk lost a part of its log is started with the pair
    that it had advertised (``Stored.recovering_until``); one that lost its term and vote comes back as another member.
  * ``Stored`` is what the disk holds *and has synced*: recovery syncs what it found before it starts a core.

State, and the order of its cursors
  * ``handed_end <= commit_end <= end`` and ``durable_end <= end``, all of them batch boundaries, all exclusive.
    ``commit_end <= durable_end`` does not hold on one member: a quorum may do without its disk.
  * ``history``: (term, begin) for every term the log has been led in. It may run ahead of the log. What is
    *advertised* is computed: the entries with ``begin <= durable_end``, the boundary included. The advertised pair
    (last term, durable end) is what votes compare.
  * ``accept_term``: the leadership under which the newest batches were taken. ``durable`` notices of another one are
    dropped, because the same record can be cut and written again, and the first write must not speak for the second.
  * ``announced_number``: which announcement of this term has been taken; 0 = none since this process began.
  * ``installing``: from taking an announcement or a snapshot, or winning, until its writes are durable, a member
    answers nothing. The completion of those writes ends it (``completions_left``), not an earlier one of the term.
  * ``recovering_until``: the pair to be regained before anything that this member sends counts; None = it counts.
  * ``first_index``: where the log on disk begins; ``history`` describes it from there on, and the record before.
  * ``state``: a ``Following``, a ``Campaign`` or a ``Leading``, replaced as a whole at each change of role or term.

The rules in short (numbers: protocol rules; each has its tests in ``tests/consensus``)
  * **Advertise and commit are a pair** (1, 7). Because the advertised history includes its boundary, a quorum that
    has *reached* the leader's term start commits everything up to its end, records of old terms included, without a
    record of the own term. Reached means: durable to there, and acknowledged after the member durably took this term's
    announcement. Ends in vote responses never count. Neither half is safe with the other half of plain Raft.
  * **The winner extends what it advertises** (3), durably, and only then announces.
  * **The common point** of two logs is at the highest term present in both histories (4): the smaller of the two ends
    of that term. Leader and member compute it independently; the member from its own present state. A difference is
    refused, harmlessly; a point below the own commit end is fatal.
  * **An announcement is three durable steps in one order** (5): term, truncation, history. Meanwhile the member answers
    nothing.
  * **Appends** are taken only under the announcement taken, only exactly at the end (6). Before the end: answered
    with the end. Beyond it: rejected with the end, and the leader probes from there, one append at a time.
  * **The commit end** of a leader is taken under the announcement only, as far as the own log reaches, never back (8).
  * **A leader that steps down keeps its tail** (10); only an announcement cuts it. Cut is not "did not happen" (12).
  * **Pre-vote and check-quorum together** (13): a member with a live leader gives no votes; a leader without answers of
    a quorum steps down; a request of a lower term is always answered with the present one.
  * **A leader that seems to be dead** is not waited for: a member that is told so gives its votes to others, and the
    voters stand one after the other, by pre-vote as ever. Only a wait is shorter; see ``docs/design/0005``.
  * **Timeouts adapt**: twice the longest delay of the last moments, from the setting up to ten times that. So a network
    whose round trips are longer than the setting costs a few terms and then keeps a leader; ``docs/design/0010``.
  * **A snapshot** (19) is offered where no common point is at or behind the log's begin; it is installed with no write
    under way, the log reset first and the history stored then. At or below the own commit end it is ignored.
  * **Who counts** is decided in :mod:`~viewstamp.consensus.standing` and nowhere else: majorities, plain and joint, who
    may vote and stand, and whose vote and end count (14, 15, 17, 18). Node repair and the offline replay call it too.
  * **Learners** acknowledge, read and answer votes; they never count (14).
  * **A member whose disk lost something is recovering** (17). It takes batches and answers its leader; its ends, its
    heartbeats for reads and its vote do not count until its durable pair is at least the one from before the damage,
    and its disk says so.
  * **The membership** in the newest membership record of the log is in force, committed or not (15). Each new leader
    replicates the one it finds as its first record: that record's commit is what RUNNING means. A change of voters is
    joint: two records, and both majorities in between. One at a time, and only by a leader that is RUNNING.
  * **Disks have names** (18). The membership names the disk of each member that was met; messages of a disk that no
    record names count nowhere. Where the owner names none (``Raft.note_incarnation``), all count.
  * **Leadership moves** by ``TimeoutNow``, to a member that holds everything; its vote requests pass check-quorum.

Files
  ``raft``: the inputs, the one output, and the table of which function handles which message. ``state``: what is stored
  and what every role has, with one value that holds what the present role has. ``follower`` ``candidate`` ``leader``
  ``reads`` ``reconfigure``: the decisions, as functions of that state. ``quiet``: how long none is due. ``standing``:
  who counts. ``invariants``: what always holds, as functions that tests and simulator ask. ``log`` ``term_history``
  ``membership`` ``progress`` ``patience`` ``messages`` ``ready`` ``roles``: nouns without decisions, but for the
  arithmetic of histories.

What it deliberately lacks, and where it would go
  * fetching a longer log from a voter before leading, as Neon and VR do: votes compare pairs instead
  * leases: reads always ask a quorum (with them a member must not vote before the lease is over, dead leader or not)
"""
