"""The client of a cluster: appends and commands that take effect once, reads in order, and no guess about either.

The modules, from the bottom up:

  * ``options.py`` has the settings, ``results.py``, ``runs.py`` and ``ended_stream.py`` the results of calls,
    ``checks.py`` checks of values and answers, ``token_file.py`` reads the token that a user gives a program.
  * ``batches.py``, ``unsent.py`` and ``session.py`` are the sans-IO core: batches, sequences, retries and refusals.
  * ``routing.py`` has the addresses, chooses the next one, and decides the reaction to an error. Pure as well.
  * ``runtime.py`` is the interface to an event loop: futures, timers, tasks, bytes. ``aio.py`` implements it for
    asyncio, ``viewstamp.trio`` for trio. Randomness and network are passed in, so the simulator runs it too.
  * ``link.py`` is one TCP connection to a node, which the clients of an event loop share; ``links.py`` opens and finds
    links; ``identity.py`` checks the node that answers. ``connection.py`` is one client's use of a link, and
    ``pool.py`` has all connections of a client, and the search for the leader.
  * ``router.py`` sends a request to any node, to one member or to the leader, until it is answered.
  * ``send_queue.py`` holds appends that must wait; ``sender.py`` sends batches and completes the appends.
  * ``append.py`` is one append, and ``appends.py`` has those to the topics of one group. ``group.py`` composes the
    parts for one group, and ``groups.py`` has those of all groups that the client uses.
  * ``stream_choice.py`` chooses the stream of records of a spread topic, and ``stream_routes.py`` finds these topics.
    ``staged_parts.py``: what an attempt of a sink stages for them.
    ``stream_moves.py`` moves the appends to a stream that was sealed; ``lost_streams.py`` gives a stream up, and
    ``stream_relocation.py`` moves one to another group; ``stream_removal.py`` removes one, and ``group_removal.py`` a
    group.
  * ``topic_appends.py``, ``actors.py``, ``sinks.py``, ``topic_calls.py``, ``spread_topics.py``, ``spread_actors.py``,
    ``archive_calls.py``, ``stream_archives.py``, ``keyed.py``, ``row_calls.py``, ``token_calls.py``, ``log_copies.py``
    and ``admin.py`` have the calls of a client. ``reader.py`` reads a topic, and ``watcher.py`` watches an actor.
  * ``spread_reader.py`` reads all streams of a spread topic in one order, which ``merge.py`` decides, and
    ``named_reader.py`` finds out of which kind a topic is. ``stream_ranges.py`` plans a range of positions of it, for
    readers that divide the work by streams, and ``archived_ranges.py`` divides the records of a stream by their runs.
  * ``streams.py`` reads one stream of a spread topic. ``balance.py`` balances the leaders of the groups.
    ``audit_notes.py`` has actions in groups noted in the audit log.
  * ``client.py`` composes them.

How appends are sent
  * Concurrent calls join the open batch of their topic. A batch is built, and takes its sequence in the session, when
    it is sent for the first time. So a record without a sequence was certainly never sent.
  * A batch is sent in the next turn of the event loop while fewer than ``batches_eager`` of its topic are unanswered; a
    full one while fewer than ``batches_in_flight`` are. Topics count apart, because their records cannot share a batch.
    If the leader is far away, a full batch grows until it is sent.
    There is no linger time and no limit of records, only of bytes.
  * Each record is checked before it joins, so a wrong record fails alone. An atomic group is never divided.
  * Within a topic, records have the order of the calls. Between topics there is no order.
  * An append that expects a position is a batch of its own (APPEND_AT), because the leader compares the position of the
    batch. The leader refuses it by a record of the log. The refusal decides the sequence, so no fence is needed.
  * The bytes held are bounded. Above the bound callers wait, in order; nothing is dropped.

How appends to a spread topic are sent
  * Its streams are topics of other groups. The client has a session with each group that it uses, so a group without a
    majority does not delay the records of others.
  * A record with a key goes to the stream of the key, and a record without one to the stream of the batch that is being
    gathered. The stream is chosen before the record joins a batch, and never changes.
  * The first append to a topic waits until a node has said whether it is spread. Appends that wait keep their order.
  * A node that does not know the stream yet is asked again, because group 0 has it.
  * An ordered append is the same append. Afterwards the leader of the group is asked for the global position
    (``global_positions.py``), in one request for all callers of a stream.

How calls of actors are sent
  * A command is a record of topic 0. Commands of all actors share batches, the session and the rules for retries, so a
    command is applied once. Each caller gets its own result.
  * A call is checked before it joins a batch: against the caller's class and, once for each name, against the interface
    that a node describes. A wrong call fails alone.
  * During an upgrade a leader may refuse a batch because its code lacks one of the commands. Then each kind of command
    is sent again in a batch of its own. Commands that timed out before are left out, because their token names the old
    batch.
  * An error that a command raised is its result. It is raised as the class of that name in the caller's code.
  * A query may be answered by any node that has applied everything that was committed when the query arrived, and
    everything that this client has a receipt for. A stale query is answered at once, with the age of the answer.
  * A watcher asks any node for changes from an index on, and yields each once. TrimmedError is raised only after all
    members said that they do not keep these changes, because a restarted node keeps few.

How whole batches are sent
  * Writers stage blocks of columns for an attempt and seal it; one writer commits all of them at once (``sinks.py``).
  * A block is one batch of the client's session. It is not decoded or divided, and it is staged once however often it
    is sent. Its receipt has an index and no position.
  * At most ``stage_bytes_in_flight`` bytes of an attempt are unacknowledged.
  * If the cluster has no room for staged bytes, the first block is sent again until it is accepted, and the others
    wait. If the caller of a block has gone, the block is fenced, so that later blocks do not wait for it.
  * Staged records are not written. If the outcome of a block is unknown, the attempt has failed and cannot be sealed.
  * Begin, seal, commit and abort are sent to the leader, and take effect once however often they are sent.

Guarantees in case of failures
  * If the connection is lost, the leader changes or the node refuses for the moment, every unanswered batch is sent
    again, in order, with the same session and sequence. So it is applied once. After a change of leader only the first
    one is sent until the node has shown that it leads; without an unanswered batch the client asks for the outcome of
    its last decided sequence. So records that were never sent do not become doubtful while there is no leader.
  * If that first batch is refused for the moment, the client asks for the outcome of the sequence before it. A leader
    that misses acknowledged batches, which is possible in interval mode only, fences them, and the session goes on.
  * A batch never changes its session. When the session is forgotten, batches that were refused at every attempt fail
    with UnavailableError and others with OutcomeUnknownError; batches that were never sent go to the next session.
  * After a final refusal a lost copy of the batch may still arrive. So its sequence is fenced (the OUTCOME request)
    before later batches are sent, and the caller gets the refusal earlier only if no attempt was lost.
  * A timeout of a record that was not sent is UnavailableError: it was not and will not be written. If it was sent, it
    is OutcomeUnknownError with a token, and the batch is still sent again, because later ones need its sequence.
    ``outcome(token)`` waits for its answer, or asks the leader, which fences it if it is not in the log. For a session
    that has ended the answer is "expired", which is neither yes nor no.
  * If another client asks for the outcome of an unanswered batch, the batch and all before it that are not in the log
    are fenced. They fail with UnavailableError: nothing was written.
  * StaleSessionError of a command: it was applied, but its result is no longer kept.
  * Clients of one event loop share connections (``link.py``). The failure, cancellation or end of one client, and the
    answers to it, do not affect the others.
  * ``close`` fails every call: with ClosedError if nothing was sent, else with OutcomeUnknownError.
  * A cancelled append may be committed if it was sent. If it was not, it never is.
  * An answer must fit its request. A receipt for another number of records, or batches that do not follow on each
    other, end the connection.
  * Reads are linearizable and yield each position once, in order, even if several nodes answer. ``node=`` and
    ``read_stale`` read the records of one member. A node that misses a committed record is an error, never the end of
    the topic.

Assumptions
  * A refusal that ``routing.py`` calls FINAL or LATER is certain: that attempt is not in the log.
  * The answers of a connection belong to the requests of that connection, and a node admits its batches in order.

The state of a batch

  state       | sent again on a new connection | outcome for its caller, if it ends here
  ----------- | ------------------------------ | -----------------------------------------------------
  open        | (never sent)                   | UnavailableError, ClosedError: nothing was written
  unanswered  | yes, same sequence             | OutcomeUnknownError
  refused     | no: its sequence is fenced     | the refusal, at once if no attempt was lost, else after the fence
  mismatched  | no: the refusal was decided    | PositionMismatchError
  answered    | no                             | receipt or results; or UnavailableError if another client fenced it

Addresses
  * Every node names the members in its WELCOME, and again on an open connection when they change. Only the
    newest membership counts; the addresses that the caller gave are always kept.
  * Members are tried first, then other addresses of the caller. No address is tried again before all others were. The
    client stays with a node that refuses for the moment only if that node has shown that it leads.
  * The leader that a node names is only a hint for the next attempt.
  * A client that had no connection while all members that it knew were replaced needs new addresses.
  * With ``cluster_id=""`` the client belongs to the first cluster that answers, and refuses others.
  * A caller that can read the nodes' directories may say which node must answer at which address (``routing.py``).

Not supported: compression, blocking calls, several sessions in one group, a choice of the fastest node.
"""

from viewstamp.client.actors import ActorProxy
from viewstamp.client.aio import Client
from viewstamp.client.connection import parse_addresses
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import (
    ActorInfo,
    ArchivedInfo,
    ArchiveInfo,
    AuditEntry,
    Change,
    GroupInfo,
    GroupLeader,
    Outcome,
    Receipt,
    SnapshotInfo,
    SpreadTopicInfo,
    TokenInfo,
    TopicInfo,
)
from viewstamp.client.runs import KeyRunInfo, RunInfo
from viewstamp.client.sinks import Attempt, CommitRange, Sealed, Sink, SinkCommit, SinkInfo

__all__ = [
    "ActorInfo",
    "ActorProxy",
    "ArchiveInfo",
    "ArchivedInfo",
    "Attempt",
    "AuditEntry",
    "Change",
    "Client",
    "ClientOptions",
    "CommitRange",
    "GroupInfo",
    "GroupLeader",
    "KeyRunInfo",
    "Outcome",
    "Receipt",
    "RunInfo",
    "Sealed",
    "Sink",
    "SinkCommit",
    "SinkInfo",
    "SnapshotInfo",
    "SpreadTopicInfo",
    "TokenInfo",
    "TopicInfo",
    "parse_addresses",
]
