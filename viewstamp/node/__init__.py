"""One member of a cluster: where consensus, the WAL and the actors meet, and nowhere else.

| file | owns | knows nothing of |
| --- | --- | --- |
| ``node`` | the life of a member: start, stop, begin again; what the server asks | how anything works |
| ``parts`` | the parts of a running member, and the order in which they are made | when |
| ``ports`` | what the parts ask of each neighbour: Protocols | who implements them |
| ``reading`` | what is asked of the state, and how up to date it must be | frames |
| ``server`` | connections that were accepted: frames in, answers out | consensus |
| ``service`` | a handler for each request of ``wire/requests.py``; what one request may be | connections |
| ``answers`` | what bodies of answers hold | connections |
| ``replica`` | the core and the order of effects: send, persist, apply | sockets, files |
| ``inbox`` | the messages that the replica's neighbours leave in its mailbox | what is done about them |
| ``ticker`` | the count of ticks, and the sleep through those that only count | what is done in a tick |
| ``read_index`` | linearizable reads that wait for a leader to confirm an index | the state |
| ``log_space`` | whether a batch still fits into the log | connections |
| ``log_store`` | the translation of the core's writes for WAL and control file | roles, messages |
| ``applier`` | the applied index, and everybody who waits for it | where batches come from |
| ``log_reader`` | batches read back, from memory or disk | why they are wanted |
| ``log_clock`` | the time that a leader gives its records, bounded by the other members' clocks | connections |
| ``data_dir`` | control file, snapshots and log of one directory: opening it | what runs |
| ``replay`` | from an open directory to what a core starts from | other members |
| ``running_mark`` | why a member is recovering at its start, and what it has to regain | the log |
| ``address_check`` | whether a node may start at the address of its settings | the log |
| ``changes`` | changes of members and leader, followed to their end for the caller | how they are made |
| ``crowd``, ``complaints`` | limits and log lines about accepted connections | what is asked over them |
| ``options`` | the settings of a node, and which release it runs | |
| ``peers`` | the connections to other members | |
| ``snapshots`` | taking, storing, choosing and fetching snapshots | |
| ``repair`` | opening a directory, and repairing it from the other members | |
| ``health`` | comparing states, room left, latency, the watchdog | |
| ``state_machine`` | the Protocol of what is replicated, and its queries | actors |

**The life of an append** is six owners long. Two of them are outside: the client's session (1) and the WAL's
writer (5). Here: ``server`` decodes the frame and admits it (2); ``replica`` gathers proposals and messages, steps
them and takes one ``Ready`` (3); the core's leader stamps the batch and appends it (4); ``applier`` applies it
when it is committed and answers (6). A follower's path is 3 to 5, on an AppendRequest that ``server`` handed over.

What it promises
  * A proposal is answered once: with its result after it is committed *and applied here*; with an error that says
    that nothing was written; or, when this node stops leading, with OutcomeUnknownError, after which the same
    session's retry tells what became of it.
  * The order of effects of a turn: what may leave at once leaves; then the writes; what promises durability leaves
    when they are durable; what is committed is applied. The process may die between any two of these.
  * Nothing per record: a batch is one object, one buffer, one apply. Actors' commands are the exception: they are
    what the user's code is called with, a bounded piece of them a turn.
  * The log is bounded: what a durable snapshot covers, and no topic holds, is dropped. A member that is away holds
    nothing; it gets a snapshot, on a connection of its own.
  * Members whose states differ are found by comparing chains; the odd one stops, and names the first command.
  * A node whose files are damaged repairs itself from the others, before its core runs: exactly what is missing, where
    that is known to be committed; else it follows silently until it has what it may have promised.
  * Half a node is worse than none: the first part that fails stops all others. A failed write or sync is final.
  * A node that lost its disk is noticed by its peers and joins anew, under another id (``peers.identity``).
  * A leader that is stopped cleanly hands over first.
  * A directory is used by one process, and by the node and cluster that it was made for.

What it assumes
  * One event loop; blocking work happens in executors of ``host`` only.
  * The state machine is deterministic, quick, and never awaits.

What it lacks, and where it would go
  * TLS and tokens: in ``server`` and ``peers``, at the handshake.
"""

from viewstamp.node.node import Node
from viewstamp.node.options import NodeOptions

__all__ = ["Node", "NodeOptions"]
