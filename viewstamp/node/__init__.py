"""One member of a cluster: the only package that combines consensus, the WAL and the actors.

| file | owns | does not depend on |
| --- | --- | --- |
| ``node`` | what all groups of a machine share: lock, port, health, failure | replicas, logs |
| ``group`` | one replica of a group: start, stop, restart; the requests of the server | the work of the parts |
| ``hosting`` | the groups that were placed on this node: creating and opening them | the work of a group |
| ``host_changes`` | the members of the groups that this node leads, after a change of their hosts | joint changes |
| ``cancelled`` | the removal of the directories of cancelled groups | the placement |
| ``removed`` | the removal of the directories of removed groups | the placement |
| ``order_waits`` | callers that wait for the global position of a record | the order |
| ``ordering`` | the rounds in which leaders report, order and map streams | the records and their rules |
| ``fitness`` | whether all members can read a kind of record, before the first one is proposed | the records |
| ``placer`` | the steps of the leader of group 0 before it places a group or creates a spread topic | the records |
| ``stream_topics`` | the creation of the streams of spread topics in the groups that this node leads | their records |
| ``budget`` | the limit of waiting appends, and the shares of the groups in it | their answers |
| ``alarms`` | the timers of all replicas of the node | what is done when one rings |
| ``beats`` | the timer and the frames for the heartbeats of all groups but group 0 | the state of a group |
| ``archivist`` | the steps of the leader of a group that archive a topic | the records and their rules, the files |
| ``group_archives``, ``archive_turns`` | the archivists of all groups, which take turns | the steps |
| ``archive_pauses`` | the pauses between requests to archive a topic that fail | the steps |
| ``store_identity`` | whether the store is the one that has the runs of a group | the files |
| ``run_objects`` | the store as the archivist calls it | the files |
| ``archive_rounds`` | the rounds in which the leader archives topics by their settings | the steps, the files |
| ``archive_requests`` | the handlers of the requests about the archive | the steps |
| ``schema_requests`` | the handler of the request about the schema of a topic | the rules |
| ``schema_queries`` | the query about the schemas of topics | the rules |
| ``keyed_archivist`` | the steps of the leader that dump and merge runs of keys | which are due, the files |
| ``keyed_reads``, ``keyed_table``, ``keyed_rows`` | reads by key: the newest records in memory, then runs | the files |
| ``keyed_requests``, ``keyed_queries`` | the handlers and the queries about keyed topics | the answers |
| ``archive_queries`` | the queries about runs of archived records and archive settings | their answers |
| ``archived`` | reads of archived records, their cache, and which runs this node has read itself | the files |
| ``parts`` | the parts of a running member, and the order in which they are made | the time at which it happens |
| ``ports`` | the Protocols by which the parts, the group and the node call their neighbours | their implementations |
| ``reading`` | reads of the state, and how up to date an answer must be | frames |
| ``ordered_reads`` | reads of one stream by global position: waits until there is something, and reads it | the rules |
| ``token_age`` | how old the tokens are on this node, for the requests of other groups | the tokens |
| ``access`` | who sends a request; when and by which state its right is checked | tokens |
| ``server`` | accepted connections: decodes frames, writes answers | consensus |
| ``peer_frames`` | the frames that a member sends on a connection that it opened | consensus |
| ``service`` | a handler for each request of ``wire/requests.py``; limits of one request | connections |
| ``member_requests`` | the handlers of changes of members and leaders | the changes |
| ``audit_notes`` | the entries of the audit log about actions in other groups than 0 | the actions |
| ``queries`` | the handlers of requests that the applied state answers | connections |
| ``group_0`` | the refusal of requests that only group 0 answers | the requests |
| ``answers`` | the fields in the bodies of answers | connections |
| ``replica`` | the core and the order of effects: send, persist, apply | sockets, files |
| ``inbox`` | the messages that the replica's neighbours put into its mailbox | their handling |
| ``ticker`` | the count of ticks, and the sleep through ticks without work | the work of a tick |
| ``read_index`` | linearizable reads that wait for a leader to confirm an index | the state |
| ``log_space`` | whether a batch still fits into the log | connections |
| ``log_store`` | the translation of the core's writes for WAL and control file | roles, messages |
| ``applier`` | the applied index, and the calls that wait for it | the origin of batches |
| ``log_reader`` | reading batches back, from memory or disk | the use of the batches |
| ``copying`` | copies of log and snapshots for a backup, and the description of the state | connections |
| ``log_clock`` | the time that a leader gives its records, bounded by the other members' clocks | connections |
| ``data_dir`` | control file, snapshots and log of one directory: opening it | the running node |
| ``fork_mark`` | the mark of an unfinished fork, with which no node starts | the fork itself |
| ``replay`` | the initial state of the core, from an open directory | other members |
| ``running_mark`` | the reason why a member is recovering at its start, and the end that it must reach | the log |
| ``address_check`` | whether a node may start at the address of its settings | the log |
| ``changes`` | changes of members and leader, until they are complete | how they are made |
| ``crowd`` | limits and log lines about accepted connections | their requests |
| ``rota`` | the share of the event loop that requests of clients take | the requests |
| ``options`` | the settings of a node, and its release | |
| ``peers`` | the connections to other members | |
| ``snapshots`` | taking, storing, choosing and fetching snapshots | |
| ``repair`` | opening a directory, and repairing it from the other members | |
| ``health`` | comparing states, free space, latency, the watchdog, the health port | |
| ``sink_parts`` | placing and dropping parts of batches of sinks, in the groups that this node leads | who decides |
| ``sink_part_queries`` | the queries about these parts | who answers them |
| ``order_queries`` | the queries about the order of streams, and for a read by global position | who answers them |
| ``placement_queries`` | the queries about placed groups and spread topics | the records about them |
| ``state_machine`` | the Protocol of the replicated state machine, and its queries about all else | actors |
| ``actor_owners`` | the queries about the groups that own instances of spread actors | actors |

**An append** has six owners, one after the other. Two of them are in other packages: the client's session (1) and the
WAL's writer (5). In this one, ``server`` decodes the frame and admits it (2); ``replica`` gathers proposals and
messages, steps them and takes one ``Ready`` (3); the core's leader stamps the batch and appends it (4); ``applier``
applies it when it is committed, and answers (6). On a follower the owners are 3 to 5, for an AppendRequest of
``server``.

Guarantees
  * A proposal is answered once: with its result after it is committed *and applied here*; with an error that means
    that nothing was written; or, if this node stops leading, with OutcomeUnknownError. After that, a retry in the
    same session gets the outcome.
  * The order of effects of a turn: messages without a promise are sent; then the writes are handed to the log; then
    messages that promise durability are sent when the writes are durable; then committed batches are applied. The
    process may die between any two of these.
  * The work is done for each batch and not for each record: a batch is one object, one buffer, one apply. Commands of
    actors are the exception, because each is a call of the user's code. A turn applies a limited number of them.
  * The log is bounded: batches that a durable snapshot covers, and that no topic keeps, are deleted. A member that is
    down does not keep them from being deleted, because it gets a snapshot, on a connection of its own.
  * Members with different states are found by comparing chains. The member that differs from a majority stops, and its
    log line names the first command that differed.
  * A node with damaged files repairs itself from the others, before its core runs. If the missing records are
    known to be committed, it fetches exactly these. Otherwise it follows without voting or acknowledging until it has
    all records that it may have acknowledged.
  * The first part that fails stops all others, because a node of which only some parts run could harm the group. A
    failed write or sync is final.
  * Peers notice a node that lost its disk, and it joins again under another id (``peers.identity``).
  * A leader that is stopped cleanly hands over first.
  * A directory is used by one process, and by the node and cluster that it was made for.

Assumptions
  * One event loop; blocking work happens in executors of ``host`` only.
  * The state machine is deterministic, quick, and never awaits.
"""

from viewstamp.node.node import Node
from viewstamp.node.options import NodeOptions

__all__ = ["Node", "NodeOptions"]
