"""What clients and nodes say to each other: the kinds of frames and the layout of their bodies.

Bodies are msgpack maps with short string keys, so that a reader of a capture understands them and a
newer version may add keys. Every request carries ``id``, chosen by the asker and echoed in the answer.

| frame           | from → to     | body                                                                   | payload |
| --------------- | ------------- | ---------------------------------------------------------------------- | ------- |
| HELLO           | opener → node | cluster, node (a peer's id, "" = a client), incarnation, version, challenge | |
| WELCOME         | node → opener | cluster, node, version, proof, limits {record_bytes_max, batch_bytes_max} | |
| MEMBERS         | node → client | members {id: address}, generation: as this node knows them now         |         |
| REFUSED         | node → opener | error, message, remedy; then the connection ends                       |         |
| PEER            | peer → peer   | one consensus message (``node/peers/codec.py``)                        | batches |
| APPEND          | client → node | id                                                                     | 1 batch |
| APPEND_AT       | client → node | id, position                                                           | 1 batch |
| OPEN_SESSION    | client → node | id                                                                     |         |
| OUTCOME         | client → node | id, session, sequence                                                  |         |
| CREATE_TOPIC    | client → node | id, name, retain_bytes, retain_seconds (0 = none)                      |         |
| LIST_TOPICS     | client → node | id, stale (bool), max_staleness (seconds; None = any)                  |         |
| DESCRIBE_TOPIC  | client → node | id, name, stale (bool), max_staleness                                  |         |
| READ            | client → node | id, topic, position, bytes_max, applied_index, wait (seconds)          |         |
| STATUS          | client → node | id, challenge                                                          |         |
| CALL            | client → node | id                                                                     | 1 batch |
| QUERY           | client → node | id, actor, key, method, arguments (packed), stale, max_staleness, applied_index |  |
| WATCH           | client → node | id, actor, key (None = all), index, wait (seconds)                     |         |
| LIST_ACTORS     | client → node | id, stale (bool)                                                       |         |
| DESCRIBE_ACTOR  | client → node | id, name                                                               |         |
| TRIM_TOPIC      | client → node | id, name, position                                                     |         |
| CONFIGURE_TOPIC | client → node | id, name, retain_bytes, retain_seconds                                 |         |
| CREATE_SNAPSHOT | client → node | id                                                                     |         |
| LIST_SNAPSHOTS  | client → node | id                                                                     |         |
| READ_SNAPSHOT   | peer → node   | id, end, term, offset, bytes_max                                       |         |
| READ_LOG        | peer → node   | id, start, end, bytes_max                                              |         |
| STAGE           | client → node | id                                                                     | 1 batch |
| BEGIN_ATTEMPT   | client → node | id, sink, owner, run, batch, name, reset (bool), keep_seconds,         |         |
|                 |               | forget_seconds (absent or 0: the sink is kept until FORGET_SINK)       |         |
| SEAL_ATTEMPT    | client → node | id, attempt, batches, checksum                                         |         |
| ABORT_ATTEMPTS  | client → node | id, sink, run, batch, attempt (0 = all of them)                         |         |
| COMMIT          | client → node | id, sink, owner, run, batch, parts                                     |         |
| LIST_SINKS      | client → node | id, stale (bool)                                                       |         |
| DESCRIBE_SINK   | client → node | id, name, stale (bool)                                                 |         |
| FORGET_SINK     | client → node | id, name                                                               |         |
| SPLIT_TOPIC     | client → node | id, name, start, end, bytes                                            |         |
| FIND_TIME       | client → node | id, name, timestamp                                                    |         |
| CHANGE_MEMBERS  | client → node | id, action (add, learn, replace, remove), node, address, replaces      |         |
| TRANSFER_LEADERSHIP | client → node | id, node ("" = who is closest)                                     |         |
| JOIN            | peer → node   | address: this reborn node asks to be added; member: another one does   |         |
| OK              | node → client | id, and what the request asks for (below)                              | (below) |
| ERROR           | node → client | id, error (class name), message, remedy, and what the class has more   |         |

What OK carries beside ``id``:

* APPEND: ``receipt`` = [first position, count, term, first index, log time]
* APPEND_AT: as APPEND, and its first position is ``position``; ERROR PositionMismatchError with ``actual``, the topic's
  next position, where that was another one. This ERROR was decided in the log: the sequence is, as by a fence
* OPEN_SESSION: ``session``
* OUTCOME: ``receipt`` where the sequence was applied, None where it was not; then it is fenced and never will be
* CREATE_TOPIC, DESCRIBE_TOPIC: ``topic`` = {id, name, first_position, last_position, bytes}; DESCRIBE_TOPIC also
  ``applied_index``, which a READ elsewhere passes on so that it sees at least as much
* LIST_TOPICS: ``topics``, a list of the same
* DESCRIBE_TOPIC, LIST_TOPICS, QUERY: ``age``: the answer holds all that was committed so many seconds ago; 0 unless
  ``stale``, infinite where the node has not known since its start. Where its age would be above ``max_staleness`` it
  asks the leader first: NoQuorumError, if there is none
* READ: ``last_position`` and ``applied_index`` of this node; payload: whole batches of the topic, in order, the
  first of which holds ``position``; empty = nothing there yet. READ is answered from what *this* node has applied,
  after it has applied ``applied_index``; ``wait`` > 0 holds the answer until a record is there or the time is over.
* STATUS: ``status``, the map that ``viewstamp status`` prints for the node; ``proof`` where the request has a challenge
* CALL: ``receipt`` as APPEND (its position is 0) and ``results``: a packed result for each command
  (``wire/commands.py``); OUTCOME of a batch of commands has ``results`` too, None where they are not kept any more
* QUERY: ``result`` (packed), ``applied_index`` and ``age``. ``applied_index`` in the request: answer no earlier than
  after this has been applied
* WATCH: ``changes``, a list of [index, log time, actor, key, method, arguments (packed), result (packed)], and
  ``index``, from which to ask on; 0 in the request = from now. TrimmedError: those changes are not kept any more
* LIST_ACTORS: ``actors``, a list of {name, class, version, instances, digest}
* DESCRIBE_ACTOR: ``actor`` = {name, version, commands, queries}: ``Interface.to_wire()``
* TRIM_TOPIC, CONFIGURE_TOPIC: ``topic`` as DESCRIBE_TOPIC
* CREATE_SNAPSHOT: ``snapshot`` = {index, term, bytes, seconds}; LIST_SNAPSHOTS: ``snapshots``, a list of
  {index, term, bytes, created}, the newest first
* READ_SNAPSHOT: ``size`` and ``identity`` of the file; payload: its bytes from ``offset`` on; a connection of its own
* READ_LOG: nothing; payload: whole batches from index ``start`` on, at least one, none beyond ``end``, all committed
* STAGE: ``receipt`` as APPEND, its position is 0: the batch has an index, and gets a position by a COMMIT
* BEGIN_ATTEMPT: ``attempt``, its id; 0 = that batch of the sink is committed already, and ``commit`` says how
  The leader adds ``keep_bytes`` to what it writes into the log: the attempt goes when the log has grown by so much
* SEAL_ATTEMPT, ABORT_ATTEMPTS, FORGET_SINK: nothing
* COMMIT: ``commit`` = {sink, batch, duplicate (bool), ranges, index, log_time}; ranges is a list of [topic's name,
  first position, count], None where it was so long ago that they are not kept. ``parts`` in the request: a list of
  [attempt, entries], in the order in which the records shall stand; entries: for each staged batch 20 bytes,
  little-endian: index u64, topic id u32, record count u32, size u32. The crc32c over the entries of an attempt, in
  the order of their indices, is ``checksum`` of SEAL_ATTEMPT
* LIST_SINKS: ``sinks``, DESCRIBE_SINK: ``sink``: {name, owner, run, batch (the last committed, -1 = none), index and
  log_time (of that COMMIT), ranges, keep_seconds, forget_seconds, attempts, sealed, bytes (what is staged)}
* SPLIT_TOPIC: ``positions``: rising, from ``start`` to ``end``, with about ``bytes`` bytes between two of them
* FIND_TIME: ``position``: at or before the first record of this log time or later
* CHANGE_MEMBERS: ``membership`` = {generation, voters, learners, outgoing, joining}, once the change is committed; who
  was added is a learner then, and is promoted when it has caught up. TRANSFER_LEADERSHIP: ``leader``
* a ``topic`` map also has ``retain_bytes`` and ``retain_seconds``; WELCOME has ``durability``, the node's mode
* WELCOME to a client, and ERROR of the class NotLeaderError, have ``members`` and ``generation`` as MEMBERS, which
  comes whenever they change, to clients whose HELLO has ``members`` = true
* HELLO and STATUS may have ``challenge``, 16 random bytes; WELCOME and OK then have ``proof``, 16 bytes that only a
  process can compute which knows the incarnation of the node's directory (``wire/identity_proof.py``); None while the
  node replays its log. Incarnations themselves are sent only from peer to peer, in HELLO and in membership records
* HELLO of a peer has ``address``, where it listens; "" = it repairs itself and asks for what it lost, no more: such
  a one is let in also by a member that is repairing itself, and can give what it still has
* HELLO of a peer has ``proof`` where it knows the incarnation of the node that it opens to (``hello_proof`` in
  ``wire/identity_proof.py``): who has it belongs to the group by a membership record that the node may lack
"""

from __future__ import annotations

from enum import IntEnum, unique

from viewstamp.enums import fast_members

__all__ = ["PROTOCOL_VERSION", "FrameKind"]

PROTOCOL_VERSION = 2


@unique
@fast_members
class FrameKind(IntEnum):
    """The kinds of frames; the numbers are the wire's and never change their meaning."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    PEER = 4
    DIGEST = 5
    APPEND = 10
    OPEN_SESSION = 11
    OUTCOME = 12
    CREATE_TOPIC = 13
    LIST_TOPICS = 14
    DESCRIBE_TOPIC = 15
    READ = 16
    STATUS = 17
    CALL = 18
    QUERY = 19
    WATCH = 20
    LIST_ACTORS = 21
    DESCRIBE_ACTOR = 22
    TRIM_TOPIC = 23
    CONFIGURE_TOPIC = 24
    CREATE_SNAPSHOT = 25
    LIST_SNAPSHOTS = 26
    READ_SNAPSHOT = 27
    STAGE = 40
    BEGIN_ATTEMPT = 41
    SEAL_ATTEMPT = 42
    ABORT_ATTEMPTS = 43
    COMMIT = 44
    LIST_SINKS = 45
    DESCRIBE_SINK = 46
    FORGET_SINK = 47
    SPLIT_TOPIC = 48
    FIND_TIME = 49
    CHANGE_MEMBERS = 50
    TRANSFER_LEADERSHIP = 51
    READ_LOG = 52
    JOIN = 53
    APPEND_AT = 54
    MEMBERS = 55
    OK = 30
    ERROR = 31
