"""The client of a cluster: appends and commands that happen once, reads in order, and no guess about either.

The modules, from the bottom up:

  * ``options.py`` holds the settings, ``results.py`` what callers get, ``checks.py`` checks what comes from outside.
  * ``batches.py`` and ``session.py`` are the sans-IO core: batches, sequences, retries, and what refusals mean.
  * ``routing.py`` knows the addresses, decides which is next, and what an error means. Pure as well.
  * ``runtime.py`` is the interface to an event loop: futures, timers, tasks, bytes. ``aio.py`` implements it for
    asyncio, ``viewstamp.trio`` for trio. Randomness and network are passed in, so the simulator runs it too.
  * ``connection.py`` is one connection, ``pool.py`` all of them, with the search for the leader.
  * ``router.py`` sends a request to any node, to one member or to the leader, until it is answered.
  * ``send_queue.py`` holds appends that must wait; ``sender.py`` sends batches and completes the appends.
  * ``appends.py``, ``actors.py``, ``sinks.py`` and ``admin.py`` are what callers call; ``reader.py`` reads a topic, and
    ``watcher.py`` watches an actor.
  * ``client.py`` composes them.

How appends travel
  * Concurrent calls join the draft of their topic. A draft becomes a batch, and takes its sequence in the session,
    in the moment in which it is first sent: what has no sequence was certainly never sent.
  * A batch leaves in the next turn of the event loop while fewer than ``batches_eager`` are unanswered, a full one
    while fewer than ``batches_in_flight`` are. There is no lingering and no limit of records: bytes decide.
  * Each record is checked before it joins; a wrong one fails alone. An atomic group is never split.
  * Within a topic records stand in the order of the calls. Between topics there is no order.
  * An append that expects a position is a batch of its own (APPEND_AT): where it begins is where the append stands. A
    leader refuses it by a record of the log, so the refusal decides its sequence, and needs no fence.
  * Held bytes are bounded; above the bound callers wait, in order. Nothing is dropped.

How calls of actors travel
  * A command is a record of topic 0: commands of all actors and keys share its draft, and with it the session, its
    sequences and all rules for retries. So a command is applied once, and each caller is told its own result.
  * A call is checked before it joins a draft: against the caller's class, and on its first way against what a node says
    of the actor (once a name). A wrong one fails alone, and is told what there is. Arguments are packed by the caller.
  * Where the leader's code knows less than that, which happens while nodes are upgraded, it refuses the batch. Then
    each kind of command in it is sent again in a batch of its own, and only what is refused again fails. Who timed out
    before is left out: its token names the batch that was refused.
  * An error that a command raised is its result; it comes back as the class of that name in the caller's code.
  * A query is answered by any node, after that has applied all that was committed when the query came, and all that
    this client was told. A stale one is answered by a node as it stands, with how far behind that may be; where that is
    bounded, a node that is not fresh enough asks the leader, or is left for another one.
  * A watcher asks for changes from an index on, at whichever node answers, and hands out each one once. Where a node
    does not keep them any more, as after a restart, all others are asked before the watcher is told: TrimmedError.

How whole batches travel
  * Writers stage blocks of columns for an attempt and seal it, and one commits all of them at once (``sinks.py``).
  * A block is one batch as it stands, in the client's session: nothing joins it, it is not divided, nobody looks into
    it, and it is staged once however often it is sent. Its receipt has an index and no position.
  * At most a window of an attempt is unacknowledged: the network is to be full, and memory is not.
  * No room for what is staged is a refusal "not now": blocks wait and go again, the first one alone until it is
    taken. One that nobody waits for any more is given up instead, and fenced, so that it holds up nobody.
  * What is staged is not written: where its outcome is unknown the attempt has failed, and its writer begins another
    one. An attempt in which a call failed or was cancelled cannot be sealed: what is sealed is complete.
  * Begin, seal, commit and abort go to the leader, wherever it goes, and happen once however often they are asked.

What is promised when things go wrong
  * A lost connection, a leader that moved, a refusal "not now": every unanswered batch is sent again, in order, with
    the same session and sequence, so it is applied once however often it is sent. After a move the first one goes
    alone, until the node has shown that it leads; where none is unanswered, the outcome of the last decided sequence is
    asked for. So what was not sent yet does not become doubtful while there is no leader.
  * A batch never changes its session. When the session is forgotten, what was refused at every attempt fails with
    UnavailableError, what was lost on the way with OutcomeUnknownError; only what was never sent goes to the next one.
  * A batch that is refused for good is out of the log, but a lost copy of it may still arrive. So its sequence is
    fenced (the OUTCOME request) before later batches pass, and a caller is told "refused" before that only where
    no attempt was lost.
  * A timeout of a record that was not sent is UnavailableError: nothing was written, nothing will be. Of one that was
    sent it is OutcomeUnknownError with a token; the batch goes on being sent, because those behind it need its
    sequence. ``outcome(token)`` then waits for its answer, or asks the leader, who fences what is not in the log. Of a
    session that has ended the answer is "expired", which is neither yes nor no.
  * Whoever else asks for the outcome of an unanswered batch fences it and all before it that are not in the log: they
    fail with UnavailableError, and certainly were not written.
  * A command that was applied, but so long ago that its result is not kept, is neither unknown nor unwritten: its
    caller gets StaleSessionError, which says so; ``outcome(token)`` says "applied" without results.
  * ``close`` tells every caller: ClosedError where nothing was sent, else OutcomeUnknownError.
  * A cancelled append may still be committed, unless it was not sent yet; then it never is.
  * A receipt for another number of records than were sent, and batches that do not follow on each other, end the
    connection: an answer is believed only if it fits the question.
  * Reads are linearizable and each position comes once, in order, whichever nodes answer; ``node=`` alone, or
    ``read_stale``, reads what one member has. A node that misses a committed record is an error, never the end of the
    topic.

What is assumed
  * a refusal with UnavailableError or RequestError is certain: that attempt is not in the log. Errors that say
    neither (NotLeaderError of a deposed leader, StorageError, one that this version does not know) are not believed
    in that: the batch counts as perhaps written and is sent again
  * answers of one connection belong to the requests of that connection; the node admits its batches in order
  * sessions are long: a client keeps one until the cluster forgets it

The state of a batch

  state       | sent again on a new connection | its caller learns, if it ends here
  ----------- | ------------------------------ | -----------------------------------------------------
  draft       | (never sent)                   | UnavailableError, ClosedError: nothing was written
  unanswered  | yes, same sequence             | OutcomeUnknownError
  refused     | no: its sequence is fenced     | the refusal, at once if no attempt was lost, else after the fence
  mismatched  | no: the refusal was decided    | PositionMismatchError
  answered    | no                             | receipt or results; or UnavailableError where somebody fenced it

A caller that can read the nodes' directories names who has to answer at which address (``routing.py``): then nothing is
sent to a node that does not prove to be that one.

Addresses are a start: every node names the members it knows in its WELCOME, and again on an open
connection when they change, also to a client that asks nothing.
  * Of what was learnt only the newest membership counts, whoever named it; what the caller named is always kept. So a
    node that was removed long ago adds nothing and takes nothing away.
  * Members are tried first, then what the caller named and is none. Nobody is asked again before all were, and a node
    that puts a client off is kept to only if it has shown that it leads.
  * Who leads is believed of that node only: what others say of it is where to ask next.
  * A client that had no connection while all members that it knew were replaced has to be told new addresses.

With ``cluster_id=""`` the first cluster that answers is the client's for good; somebody of another one is refused, and
when nobody else is left, so are the callers.

A receipt names the durability of the node that gave it, in that node's own words.

What it deliberately lacks: compression, a blocking face, more than one session, a choice of the quickest node.
"""

from viewstamp.client.actors import ActorProxy
from viewstamp.client.aio import Client
from viewstamp.client.connection import parse_addresses
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import ActorInfo, Change, Outcome, Receipt, SnapshotInfo, TopicInfo
from viewstamp.client.sinks import Attempt, CommitRange, Sealed, Sink, SinkCommit, SinkInfo

__all__ = [
    "ActorInfo",
    "ActorProxy",
    "Attempt",
    "Change",
    "Client",
    "ClientOptions",
    "CommitRange",
    "Outcome",
    "Receipt",
    "Sealed",
    "Sink",
    "SinkCommit",
    "SinkInfo",
    "SnapshotInfo",
    "TopicInfo",
    "parse_addresses",
]
