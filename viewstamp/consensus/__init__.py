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

The rules by their numbers; ``docs/protocol.md`` explains them, and each has its tests in ``tests/consensus``
  | rule | text |
  | --- | --- |
  | 1, 7 | a quorum that has durably reached the term start commits everything up to its end, of old terms too |
  | 3 | the winner extends its advertised history, durably, and only then announces |
  | 4 | the common point of two logs is in the highest term of both histories, computed by both sides |
  | 5 | an announcement is three durable steps in one order: term, truncation, history; no answers meanwhile |
  | 6 | appends are accepted under the accepted announcement, exactly at the end |
  | 7 | a follower that makes a quorum with its leader finds a commit by itself, if it is told how far that is durable |
  | 8 | a commit end is adopted under the announcement, as far as the own log reaches, and never moves back |
  | 10, 12 | a leader that steps down keeps its tail; cut is not "did not happen" |
  | 13 | pre-vote and check-quorum together; a request of a lower term is answered with the present one |
  | 14 | learners acknowledge, read and answer votes; they never count |
  | 15 | the newest membership record is in force, committed or not; changes of voters are joint, one at a time |
  | 17 | a member with a damaged disk is recovering: it does not count until it has regained its pair, durably |
  | 18 | the membership names each member's disk; messages of other disks count nowhere, if it names one |
  | 19 | a snapshot is installed with no write under way: the log is reset first, and the history stored then |

Without a number: members do not wait for a leader that seems dead (``docs/design/0005``), timeouts adapt
(``docs/design/0010``), leases are off by default (``docs/design/0018``).

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
