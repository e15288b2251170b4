"""What clients and nodes say to each other: the kinds of frames and the layout of their bodies.

Bodies are msgpack maps with short string keys, so that a reader of a capture understands them and a
newer version may add keys. Every request carries ``id``, chosen by the asker and echoed in the answer.

| frame           | from → to     | body                                                                   | payload |
| --------------- | ------------- | ---------------------------------------------------------------------- | ------- |
| HELLO           | opener → node | cluster, node (a peer's id, "" = a client), incarnation, version       |         |
| WELCOME         | node → opener | cluster, node, incarnation, version, limits {record_bytes_max, batch_bytes_max} | |
| REFUSED         | node → opener | error, message, remedy; then the connection ends                       |         |
| PEER            | peer → peer   | one consensus message (``node/codec.py``)                              | batches |
| APPEND          | client → node | id                                                                     | 1 batch |
| OPEN_SESSION    | client → node | id                                                                     |         |
| OUTCOME         | client → node | id, session, sequence                                                  |         |
| CREATE_TOPIC    | client → node | id, name                                                               |         |
| LIST_TOPICS     | client → node | id, stale (bool)                                                       |         |
| DESCRIBE_TOPIC  | client → node | id, name, stale (bool)                                                 |         |
| READ            | client → node | id, topic, position, bytes_max, applied_index, wait (seconds)          |         |
| STATUS          | client → node | id                                                                     |         |
| OK              | node → client | id, and what the request asks for (below)                              | (READ)  |
| ERROR           | node → client | id, error (class name), message, remedy, leader, address               |         |

What OK carries beside ``id``:

* APPEND: ``receipt`` = [first position, count, term, first index, log time]
* OPEN_SESSION: ``session``
* OUTCOME: ``receipt`` where the sequence was applied, None where it was not; then it is fenced and never will be
* CREATE_TOPIC, DESCRIBE_TOPIC: ``topic`` = {id, name, first_position, last_position, bytes}; DESCRIBE_TOPIC also
  ``applied_index``, which a READ elsewhere passes on so that it sees at least as much
* LIST_TOPICS: ``topics``, a list of the same
* READ: ``last_position`` and ``applied_index`` of this node; payload: whole batches of the topic, in order, the
  first of which holds ``position``; empty = nothing there yet. READ is answered from what *this* node has applied,
  after it has applied ``applied_index``; ``wait`` > 0 holds the answer until a record is there or the time is over.
* STATUS: ``status``, the map that ``viewstamp status`` prints for the node
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["PROTOCOL_VERSION", "FrameKind"]

PROTOCOL_VERSION = 1


class FrameKind(IntEnum):
    """The kinds of frames; the numbers are the wire's and never change their meaning."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    PEER = 4
    APPEND = 10
    OPEN_SESSION = 11
    OUTCOME = 12
    CREATE_TOPIC = 13
    LIST_TOPICS = 14
    DESCRIBE_TOPIC = 15
    READ = 16
    STATUS = 17
    OK = 30
    ERROR = 31
