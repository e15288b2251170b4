"""Topics, sinks, sessions and actors: the replicated state machine that a node runs above its log.

Promises
  * A topic's positions run from 1 without a gap, in log order. The leader stamps the position of a record when its
    batch enters the log, and every member checks it when it applies the batch. A staged record gets its position when
    the COMMIT that names its batch is applied.
  * The records that are staged for a batch of a sink become visible at one index of the log, whole, over all topics,
    and once. Records that no COMMIT names never become visible. A batch number that a sink has committed is not
    committed again.
  * A batch of a session, of records or of actors' commands, is applied at most once, even if it is sent several times
    and to several leaders: the sequences of a session are strict, so the batch with sequence n is applied only as the
    successor of n - 1. A retry gets the same receipt and the same results of commands as the first attempt.
  * "Did it happen?" is answered from replicated state and never guessed. A fence makes "no" final: the sequence cannot
    be applied afterwards, even if a copy of the batch is still under way.
  * A topic keeps its records until they are trimmed, by a user or by the topic's retention. Reading a trimmed record
    raises TrimmedError. Trims and retention are applied from the log like everything else, so all members keep the same
    records.
  * A record in the log decides which sessions end, independent of a member's clock and settings. A session that has
    ended accepts nothing, and the outcomes of its sequences are unknown: neither yes nor no.
  * A batch of records that expects a position gets it, or no position. A refusal is decided in the log, behind the
    record that has the position, so that both are truncated together.
  * Members that applied the same prefix of the log have the same state, byte for byte (``digest``), and the same
    ``chain`` if they run the same code of actors (``lineage``).
  * A cut is the whole state at one index, even if more is applied while it is read. A machine that adopts a cut goes
    on exactly like the machine from which it was taken.

The modules
  * ``machine``: :class:`Streams`, which a node runs. ``ledger``: the effect of each batch on topics and sinks.
    ``leadership``: the leader's decision about a batch; ``admission``: the state as it will be once its whole log is
    applied. ``answers``: to queries.
  * ``runs``: the catalogue of runs of archived records (design note 0022). ``archive_settings``: the settings of topics
    that are archived without a request; ``archive_plan``: which run is due, and what the log and the store keep.
  * ``topic_schema``: the schemas of topics.
  * ``key_runs``: the catalogue of runs of keyed topics (design note 0028); ``key_plan``: which dump or merge is due.
  * ``placement``: the groups of the cluster, their founders and their streams; ``group_hosts``: their hosts;
    ``group_removal``: whether a group is empty, so that it may be removed. ``spread``: the topics whose records are
    spread over streams of these groups; ``sealing``: the end of a stream. ``order``: the order of the records of each
    such topic; ``stream_map``: its part for the streams of one group (design note 0021). ``cover``: the records of a
    stream that a node may send to a reader by global position (design note 0024). ``spread_commits``: the batches of
    sinks over several groups that are not visible yet (design note 0031). ``joint_cut``: where a backup cuts the logs
    of all groups (design note 0017).
  * ``access``: tokens and the audit log. ``gate``: whether a caller may send a request.
  * ``state``: the state that all members have in common. ``topic``, ``session``, ``sessions``, ``staging`` (of sinks):
    its parts. ``settings``: the records that create, configure and trim topics. ``cut``: the state at one index, in
    pieces for a snapshot.

Assumptions
  * ``apply`` gets every committed batch once, in log order. ``admit`` is called between ``begin_leading`` and
    ``stop_leading``, by a leader that has applied all records of earlier terms in its log.
  * **A batch that was ``Accepted`` enters the log.** The admission view counts on it, so a node checks for space
    *before* it calls ``admit``. If it cannot append after all, it must stop leading.
  * Log times never fall along the log.

The state
  topics     by id, from 1, in order of creation; never removed. Each has a *sparse map*: the position, index, bytes and
             log time of some of the steps in which its records became visible, from the first kept record on. A step is
             a batch of RECORDS, or a COMMIT, which comes after its staged batches
  sinks      by name: owner, run and last batch; and their attempts, by id (the index of their BEGIN): the number of
             staged batches, their bytes, and a checksum over their entries, never the entries. At most ``SINKS_MAX``
  sessions   by id (the index of the record that opened it), ordered by last use in the log, with its log time; at most
             ``SESSIONS_MAX``: opening one more forgets the least recently used one. Each has the receipts of its newest
             256 batches, and the results of those of the newest 64 that held commands, up to 1 MiB; all together up to
             ``RESULT_BYTES_MAX``, above which the session that called longest ago loses its results first
  access     tokens by id: name, roles, hashes of their secrets, and times; whether access control is on, which no
             record turns off; the newest 10,000 administrative actions. Each session has the token that opened it
  groups     by id (the index of the record that placed it): founders with their incarnations, and streams; at most
             ``GROUPS_MAX``. Only in the state of group 0
  spread     topics by name: retention, number of slots, the group of each stream, and the streams that are closing or
             sealed. Only in the state of group 0
  sealed     the names of the streams that get no records any more. Only in the state of another group
  order      number; for each spread topic its next global position, and for each stream its ordered end and the runs
             that its CONTEXTs lack. Only in the state of group 0
  maps       by stream: the runs of its CONTEXTs. Only in the state of another group
  runs       by id (the index of the record that prepared it): topic, positions, state, and the content of a committed
             one; the archived end of each topic. At most ``RUNS_MAX``
  actors     their instances: ``actors/replicated``
  log bytes  the bytes of all applied batches; they space the entries of the sparse maps
  chain      a checksum over all decisions here, one step a batch; the actors have their own, one step a command

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
                  | RequestError), and this group must own its instance     | results. Unknown: OutdatedCodeError
                  | (``spread_actors.py``); position 0                      |
  FENCE           | n <= applied last: Answered; else Accepted              | n <= last: the recorded answer, or
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
  CONFIGURE_TOPIC | Accepted where the topic exists                         | sets the given keys, trims at once;
                  |                                                        | {"topic": ...}
  CONFIGURE_      | Accepted where apply would not refuse it now            | sets the given keys, creates the topic if
  ARCHIVE         |                                                        | it says so; {"topic": ...}
  TRIM_TOPIC      | Accepted up to the topic's next position as applied     | records below go; {"topic": ...};
                  |                                                        | RequestError beyond the next position
  STAGED          | as RECORDS, and its attempt must be open, and below the | checks the sequence; counts it to
                  | quota: else StagingError, OverloadedError; position 0   | its attempt, if that is still open
  BEGIN_ATTEMPT   | committed already: Answered, without an entry; another | {"attempt": id}, new or found by its
                  | owner, a superseded run: FencedError; else Accepted     | name; a new run or owner drops the
                  |                                                        | attempts before it. With
                  |                                                        | ``forget_seconds`` the sink goes by
                  |                                                        | itself so long after its last use
  SEAL_ATTEMPT    | Accepted                                               | StagingError unless the attempt holds
                  |                                                        | exactly the named batches
  ABORT_ATTEMPTS  | Accepted                                               | drops attempts of that run and batch
  COMMIT          | a committed batch: Answered; else Accepted where apply  | positions for all its batches, or
                  | would not refuse it now                                 | none: StagingError, FencedError, or
                  |                                                        | a duplicate; then it is an idle one
  FORGET_SINK     | Accepted                                               | the sink and its attempts are gone
  BEGIN_PART      | Accepted, up to a number of attempts                   | {"attempt": id}, new or found by the
                  |                                                        | attempt; 0 = it is placed already
  COMMIT_PARTS    | a committed batch: Answered; else Accepted where apply  | the batch is decided, and visible with the
                  | would not refuse it now, up to a number that are not    | ORDER that releases it; StagingError,
                  | visible                                                 | FencedError, or a duplicate
  CREATE_TOKEN    | Accepted                                               | {"token": ...}; RequestError: the name is
                  |                                                        | taken. A late copy changes nothing
  ROTATE_TOKEN    | Accepted                                               | the new secret is valid, the older one for
                  |                                                        | some time; RequestError: not the next one
  REVOKE_TOKEN    | Accepted                                               | the token or its older secret has ended
  AUDIT           | Accepted                                               | an entry of the audit log
  PLACE_GROUP     | the same group exists: Answered; RequestError where     | {"group": ...}, new or found by its
                  | apply would refuse it now; else Accepted                | streams; RequestError: a stream belongs
                  |                                                        | to another group
  HOSTED          | recorded already: Answered; else as PLACE_GROUP         | the incarnation of a founder is recorded;
                  |                                                        | RequestError: another one is
  CANCEL_GROUP    | cancelled already: Answered; else as PLACE_GROUP        | the group is gone; RequestError: it is
                  |                                                        | established, or was never placed
  REMOVE_GROUP    | removed already: Answered; else as PLACE_GROUP          | the group is gone; RequestError: it is not
                  |                                                        | empty, not established, or never placed
  HOST_GROUP      | a host already: Answered; else as PLACE_GROUP           | {"group": ...}; RequestError: the node has
                  |                                                        | left, or there are too many hosts
  UNHOST_GROUP    | leaving or gone: Answered; else as PLACE_GROUP          | {"group": ...}; RequestError: no host, or
                  |                                                        | the last one
  LEFT_GROUP      | gone already: Answered; else as PLACE_GROUP             | the node is no host; RequestError: nobody
                  |                                                        | has removed it
  SPREAD_TOPIC    | the same topic exists: Answered; RequestError where    | {"topic": ...}, new or found by its
                  | apply would refuse it now; else Accepted                | name; TopicExistsError: it is another
                  |                                                        | topic, or has other settings
  TRIM_SPREAD     | without effect: Answered; RequestError where apply      | {"topic": ...}; RequestError: it is
                  | would refuse it now; else Accepted                      | beyond the ordered end of the topic
  CONFIGURE_      | without effect: Answered; RequestError where apply      | {"topic": ...}; RequestError: it was
  SPREAD          | would refuse it now; else Accepted                      | configured after the record's ``since``
  CLOSE_STREAM,   | without effect: Answered; RequestError where apply      | {"topic": ...}; RequestError: the rule of
  SEALED_STREAM,  | would refuse it now; else Accepted                      | ``sealing.py`` that it breaks
  LOSE_STREAM,    |                                                         |
  LOSE_SEALED_    |                                                         |
  STREAM,         |                                                         |
  GONE_STREAM     |                                                         |
  SEAL_STREAM     | sealed already: Answered; else Accepted; records of its | the stream gets no record any more; {}
                  | topic are refused from then on                          |
  DROP_STREAM     | dropped already: Answered; else as PLACE_GROUP          | the topic of the stream is deleted; {}
  SPREAD_ACTOR    | the actor is spread: Answered; RequestError where       | {"actor": ...}, new or found by its
                  | apply would refuse it now; else Accepted                | name; RequestError: it has an instance,
                  |                                                        | or is spread in another way
  ORDER           | without effect: Answered; RequestError where apply      | {"version"}; RequestError: it names what
                  | would refuse it now; else Accepted                      | is no stream of a topic with streams
  CONTEXT         | without effect: Answered; RequestError where apply      | {}; RequestError: a gap, a contradiction,
                  | would refuse it now; else Accepted                      | or runs beyond the records of the stream
  PREPARE_RUN,    | Accepted where apply would not refuse it now            | {"run": ...}; RequestError: the rule it
  COMMIT_RUN,     |                                                        | breaks, by name. Its own second copy breaks
  DROP_RUN,       |                                                        | one, too
  FORGET_RUN      |                                                        |
  CONFIGURE_KEYED | Accepted where the topic exists                         | {"topic": ...}: its view begins or ends
  PREPARE_KEYS,   | as PREPARE_RUN                                          | {"run": its id}; RequestError: the rule it
  COMMIT_KEYS,    |                                                        | breaks, by name
  DROP_KEYS,      |                                                        |
  FORGET_KEYS     |                                                        |
  MEMBERSHIP      | Accepted                                               | no effect
  FORK            | never admitted: a fork writes it (``viewstamp.fork``)    | forgets all sessions, groups, spread
                  |                                                        | topics and actors, the order, and the runs
                  |                                                        | that are not committed; an audit entry
  FORK_GROUPS     | never admitted: a fork of a cluster with groups        | forgets all sessions, other groups than it
                  | writes it                                              | names, and runs as FORK; an audit entry
  RESHARD_ACTOR   | never admitted: a reshard of a stopped cluster writes  | the actor has these groups (in group 0);
                  | it (``resharding.py``)                                 | instances of other owners leave
  INSTANCES       | never admitted: as RESHARD_ACTOR                       | instances come, asleep
  RECOVER_ORDER   | never admitted: a recovery writes it behind            | the order is what the groups that are left
                  | FORK_GROUPS (``recovering.py``)                        | have; attempts of sinks are dropped
  SET_ASIDE       | never admitted: as RECOVER_ORDER, in another group     | streams that group 0 does not know are
                  |                                                        | renamed, and have no records

``ledger.py`` decides about topics and sinks, without sessions and actors, because the offline replay of a log uses it
too.

The records of CREATE_TOPIC and CONFIGURE_TOPIC are msgpack {"name", "retain_bytes", "retain_seconds"}; None or a
missing key = unspecified, 0 = keep everything. A creation that specifies neither, or 0 for both, accepts an existing
topic with any retention. The record of TRIM_TOPIC is {"name", "position"}: the first position to keep. These three need
no session, because applying them twice has the same effect as once.

The admission view (``admission.py``) is the applied state as it will be once everything in the leader's log is applied:
next positions and last sequences, as differences to the applied state. It exists because a leader pipelines: batch n +
1 arrives long before n is applied. A deterministic refusal of records or commands must therefore happen in ``admit``: a
batch that is in the log and takes no position would leave a gap behind the positions that were stamped after it. One
refusal could come later: a session could be forgotten between admission and application. It is excluded, because at
most one batch in the log forgets sessions (OPEN_SESSION or EXPIRE_SESSIONS), the sessions that it forgets are known,
and their batches are refused with UnavailableError until it is applied. Nor could an actor be spread over groups in
that time: while a SPREAD_ACTOR is in the log and not applied, commands of its actor are refused with UnavailableError.

While access control is on, ``admit`` also checks the caller of a client's batch (``gate.py``), by the applied state:
after the retries, so that a batch that is in the log is answered, and before the order of sequences, because a caller
with an ended token cannot fill a gap. The outcome of a sequence that is not in the log is "not applied" for such a
caller, without a fence: no leader admits it any more, because each has applied the end of the token before it leads.

A leader proposes EXPIRE_SESSIONS by itself (``upkeep``, once a second). Its record is the msgpack list of at most 1000
ids of sessions that were unused for ``session_seconds``, up to the log time of the record itself. It holds the ids and
not the time, so that members need not agree on when a session was used. The list is empty if the record is only there
to advance log time: staged records and tokens expire, archive delays end and archived records are deleted by log time,
and a full log accepts no other records. The
admission view also holds the decoded commands of checked batches, so that the leader decodes them once.

COMMITs and the admission view. A COMMIT that was admitted may still be refused when it is applied, because an abort or
another run may precede it in the log. Until then the next positions of its topics are unknown, so records for these
topics are refused with UnavailableError. COMMITs without effect ("idle") are listed in the state as long as a reader
may scan the log over them.

The outcome of each failure of a sink's writers
  a writer dies before its seal      nothing is visible; its attempt ends with the next run, the batch's COMMIT, or by
  age a writer dies after its seal       the same: only a COMMIT that names it makes anything visible
  a BEGIN, SEAL, ABORT comes twice   the second has no effect: found by its name, compared, nothing left to drop
  a STAGED batch comes twice         the session's sequence: applied once
  a COMMIT comes twice, or late      its batch is not above the sink's last one: the answer is the earlier commit
  an ABORT comes after its COMMIT    the attempts do not exist any more: nothing to drop
  two drivers at once                the one whose BEGIN is later in the log has the sink; the other one is fenced
  the leader changes                 a leader's memory holds only the pending bytes of the quota; all else is in the log
  the caller is cancelled            as if it had died; a later call returns the outcome

Retention, of a topic without archive settings; ``archive_plan.py`` has the others. A topic with ``retain_bytes`` is
checked at each of its batches; all topics with ``retain_seconds``, or with a delete age of archived records, at the
first batch, of any kind, in each second of log time. So records age in a topic that gets none, but not in a log that
gets none. Retention drops whole entries of the sparse map, so a topic may keep too much by one entry: 64 KiB, or one
COMMIT, or a sixteenth of ``retain_seconds`` (at least a second); never too little. A trim by position is exact, but the
batch that holds the position stays whole in the log. ``keep_from`` is the lowest index of a record that is staged,
or that a topic keeps and that is in no committed run whose archive delay is over: the log may not be dropped beyond it.

Cuts (``cut.py``) copy on write: a topic, a session or an instance is packed when its turn comes, or just before it
changes for the first time. So beginning a cut takes time for a list of the items, and a piece for its content. Sinks
are packed at once, because they are few and small.

Invariants
  * ``topic.next_position`` = 1 + records of the topic in the applied log; ``first_position`` never falls
  * every kept receipt's sequence is in ``(last - RECEIPTS_MAX, last]``, every kept result's in
    ``(last - RESULTS_MAX, last]``
  * every attempt was begun by its sink's present owner and run, for a batch above the sink's last one
  * admission view >= applied state, for every position and every sequence

Deliberate omissions
  * readers of the order of streams: later
  * the content of records: a batch of records is never decoded
  * clocks: records expire by log time, sessions by a record that a leader wrote by its clock, never by this machine's
"""

from viewstamp.streams.machine import Streams

__all__ = ["Streams"]
