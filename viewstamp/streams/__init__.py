"""Topics, sinks, sessions and actors: the replicated state machine that a node runs above its log.

What it promises
  * A topic's positions run from 1 without a gap, in log order: the position of a record is decided when its
    batch enters the log (the leader stamps it) and checked again by every member when it is applied. That of a staged
    record is decided when the COMMIT that names its batch is applied.
  * What is staged for a batch of a sink becomes visible at one index of the log, whole, over all topics, and once;
    what no COMMIT names never does. A batch number that a sink has committed is not committed again.
  * A batch of a session, of records or of actors' commands, is applied at most once, whoever retries it, however
    often, to whichever leader: a session's sequences are strict, so the batch with sequence n is applied only as
    the successor of n - 1. A retry is told what the first one was told: its receipt, and its commands' results.
  * "Did it happen?" is answered from replicated state and never guessed. A fence makes "no" final: the
    sequence that was asked about can not be applied afterwards, even where a copy of it is still on its way.
  * A topic keeps its records until somebody trims them or its retention does; what is gone stays gone, and
    who asks for it is told so (TrimmedError). Trims and retention are applied from the log like everything
    else, so all members keep the same.
  * Which sessions end is decided by a record, whatever a member's clock or settings are. A session that has ended takes
    nothing any more, and what became of its sequences can not be told: neither yes nor no.
  * A batch of records that expects a position has it, or takes none. A refusal is decided in the log, behind the record
    that has the position: the one is cut with the other.
  * Members that applied the same prefix of the log have the same state, byte for byte (``digest``), and the
    same ``chain``, where they run the same code of actors (``lineage``).
  * A cut is the whole state at one index, whatever is applied while it is handed out; a machine that adopts it
    goes on exactly as the one it was taken of.

The modules
  * ``machine``: :class:`Streams`, which a node runs. ``ledger``: what each batch does to topics and sinks.
    ``admission``: the state as it will be once the leader's whole log is applied.
  * ``state``: what all members have alike. ``topic``, ``session``, ``sessions``, ``staging`` (of sinks): its parts.
    ``settings``: what a topic's own records say. ``cut``: the state at one index, in pieces for a snapshot.

What it assumes
  * ``apply`` gets every committed batch once, in log order; ``admit`` is called between ``begin_leading`` and
    ``stop_leading``, by a leader that has applied all that earlier terms left in the log.
  * **A batch that was ``Accepted`` enters the log.** The admission view counts on it: a node checks for space
    *before* it asks. Where it cannot append after all, it must stop leading.
  * Log times never fall along the log.

The state
  topics     by id, from 1, in order of creation; never removed. Each has a *sparse map*: position, index, bytes and
             log time of what became visible now and then, from the first one that is kept on: a batch of RECORDS, or
             a COMMIT, whose staged batches lie before it
  sinks      by name: owner, run and last batch; and their attempts, by id (the index of their BEGIN): how many batches
             were staged, how many bytes, and a checksum over their entries, never the entries. At most ``SINKS_MAX``
  sessions   by id (the index of the record that opened it), ordered by last use in the log, whose log time each has;
             at most ``SESSIONS_MAX``, the least recently used is forgotten when one more is opened. Each has the
             receipts of its newest 256 batches, and the results of those of the newest 64 that held commands, up to
             1 MiB; all together up to ``RESULT_BYTES_MAX``: who called longest ago loses them first
  actors     their instances: ``actors/replicated``
  log bytes  bytes of all batches applied; it spaces the entries of the sparse maps
  chain      a checksum over what was decided here, a step a batch; the actors have their own, a step a command

Decisions per kind of batch

  kind            | admit (leader)                                         | apply (every member)
  --------------- | ------------------------------------------------------ | -----------------------------------
  RECORDS         | n = last + 1: Accepted with the topic's next position   | checks position and sequence,
                  | n <= last, applied: Answered (receipt, None = fenced)   | advances both, returns the receipt
                  | n <= last, still in the log: Waiting                    |
                  | expects another position than the next one: Accepted,   |
                  | as a FENCE that names the topic                         |
                  | n <= last, under a fence in the log: UnavailableError   |
                  | n > last + 1: UnavailableError (a gap: resend from last)|
                  | older than the kept receipts: StaleSessionError         |
  COMMANDS        | as RECORDS, but n = last + 1: every command must be     | checks the sequence, runs the
                  | known to this leader's code (UnknownActorError,         | commands; receipt (position 0) and
                  | RequestError); position 0                               | results. Unknown: OutdatedCodeError
  FENCE           | n <= applied last: Answered; else Accepted              | n <= last: what it was answered, or
                  |                                                        | None; else last + 1 .. n become
                  |                                                        | "not applied", last = n, None. With a
                  |                                                        | topic: PositionMismatchError, kept
  OPEN_SESSION    | Accepted; OverloadedError while another one that has to | forgets the oldest when full;
                  | forget a session is in the log                          | returns {"session": id}
  EXPIRE_SESSIONS | Accepted; UnavailableError while a session that it    | forgets those that it names; {}
                  | names is used in the log, or another batch there has   |
                  | to forget one                                          |
  CREATE_TOPIC    | Accepted where apply would not refuse it now            | {"topic": ...}, also where it exists;
                  |                                                        | TopicExistsError: it keeps something
                  |                                                        | else than is asked for
  CONFIGURE_TOPIC | Accepted where the topic exists                         | sets what is said, trims at once;
                  |                                                        | {"topic": ...}
  TRIM_TOPIC      | Accepted up to the topic's next position as applied     | records below go; {"topic": ...};
                  |                                                        | RequestError beyond the next position
  STAGED          | as RECORDS, and its attempt must be open, and below the | checks the sequence; counts it to
                  | quota: else StagingError, OverloadedError; position 0   | its attempt, if that is still open
  BEGIN_ATTEMPT   | committed already: Answered, without an entry; another | {"attempt": id}, new or found by its
                  | owner, a superseded run: FencedError; else Accepted     | name; a new run or owner drops what
                  |                                                        | was staged before it. With
                  |                                                        | ``forget_seconds`` the sink goes by
                  |                                                        | itself so long after its last use
  SEAL_ATTEMPT    | Accepted                                               | StagingError unless the attempt holds
                  |                                                        | just what is said
  ABORT_ATTEMPTS  | Accepted                                               | drops attempts of that run and batch
  COMMIT          | a committed batch: Answered; else Accepted where apply  | positions for all its batches, or
                  | would not refuse it now                                 | none: StagingError, FencedError, or
                  |                                                        | a duplicate; then it is an idle one
  FORGET_SINK     | Accepted                                               | the sink and what it staged are gone
  MEMBERSHIP      | Accepted                                               | nothing

Of topics and sinks ``ledger.py`` decides, without sessions and actors: what replays a log offline uses the same.

The records of CREATE_TOPIC and CONFIGURE_TOPIC are msgpack {"name", "retain_bytes", "retain_seconds"}; what is None or
missing is not said, 0 = keep everything. A creation that says neither, or 0 for both, takes a topic as it is. That of
TRIM_TOPIC is {"name", "position"}: the first position to keep. None of them needs a session: twice is as good as once.

The admission view (``admission.py``) is what the applied state will be once everything in the leader's log is
applied: next positions and last sequences, as differences to the applied state. It exists because a leader
pipelines: batch n + 1 arrives long before n is applied. A deterministic refusal of records or commands must therefore
happen in ``admit``: a batch that is in the log and takes no position would leave a gap behind the positions that were
stamped after it. The one refusal that could come later is a session forgotten between admission and
application. It is excluded: a batch that will forget sessions (OPEN_SESSION, EXPIRE_SESSIONS) is the only such one in
the log, and until it is applied batches of those are refused with UnavailableError, so which ones it forgets is known.

EXPIRE_SESSIONS is what a leader proposes by itself (``upkeep``, once a second): its record is the msgpack list of at
most 1000 ids, of sessions that nobody has used for ``session_seconds``, reckoned from the time that the record itself
will have. The ids and not the time stand there, so that members need not agree on when a session was used. It names
none where it is there only to let time pass: what is staged goes by the log's time, and a full log takes nothing else.
The view also holds the commands that were decoded to be checked, so that the leader decodes them once.

COMMITs and the admission view. A COMMIT may be refused when it is applied, though it was admitted: an abort or another
run may stand before it in the log. So which positions come behind it in its topics is not known until then, and records
for them are refused with UnavailableError for that moment. Idle COMMITs, those without effect, are listed in the state
as long as somebody may scan the log over them.

How each thing that can go wrong on a sink's way ends
  a writer dies before its seal    nothing is visible; its attempt goes with the next run, the batch's COMMIT, by age
  ... behind its seal              the same: only a COMMIT that names it makes anything visible
  a BEGIN, SEAL, ABORT comes twice  once is as good: found by its name, compared, nothing left to drop
  a STAGED batch comes twice        the session's sequence: applied once
  a COMMIT comes twice, or late     its batch is not above the sink's last one: told how that was committed
  an ABORT comes behind its COMMIT  the attempts are not there any more: nothing to drop
  two drivers at once               whose BEGIN is later in the log is the sink's run; the other one is fenced
  the leader changes anywhere       nothing of the above is in a leader's memory but the quota's pending bytes
  the caller is cancelled           as if it had died there; whoever asks again is told what became of it

Retention. A topic with ``retain_bytes`` is looked at with each of its batches; all topics with ``retain_seconds`` with
the first batch, of whatever kind, in each second of the log's time: so records age in a topic that gets none, but not
in a log that stands still. What goes are whole entries of the sparse map, so what is kept may be too much by one entry:
64 KiB, or one COMMIT, or a sixteenth of ``retain_seconds`` (at least a second); never too little. A trim by position is
exact, but the batch that holds the position stays whole in the log. ``keep_from`` is the lowest index at which a record
lies that a topic keeps or that is staged: a log may not be dropped beyond it.

Cuts (``cut.py``). Copy on write: a topic, a session or an instance is packed when its turn comes, or just before it
changes for the first time. So beginning a cut costs a list of what there is, and a piece what it holds. Sinks are
packed at once: they are few, and small.

Invariants
  * ``topic.next_position`` = 1 + records of the topic in the applied log; ``first_position`` never falls
  * every kept receipt's sequence is in ``(last - RECEIPTS_MAX, last]``, every kept result's in
    ``(last - RESULTS_MAX, last]``
  * what was staged and is not visible was begun by its sink's present owner and run, for a batch above its last one
  * admission view >= applied state, for every position and every sequence

What it deliberately lacks
  * logs of their own for topics: later, in this package
  * the text of records: a batch of records is never opened
  * clocks: records go by the log's time, sessions by a record that a leader wrote by its clock, never by this machine's
"""

from viewstamp.streams.machine import Streams

__all__ = ["Streams"]
