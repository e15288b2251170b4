"""The simulator: runs whole clusters of the real product on a simulated host, from one seed.

The consensus core, the WAL with its recovery and control file, the node with its server, links and applier, the state
machine and the client are the real ones. Only the host underneath is simulated: the event loop's clock, the network,
the disks and the randomness. So a run behaves as a real cluster could, and a seed with a commit reproduces a failure
completely.

| file | contains |
| --- | --- |
| ``loop`` | an asyncio event loop in simulated time; processes that can be killed and paused |
| ``network`` | links with delay, loss, doubling, reordering, one-way partitions and broken connections |
| ``disk``, ``volume`` | disks on which a power cut leaves any subset of the unsynced changes |
| ``recording`` | the same rules for a real disk: record a real node, rebuild its directory as after a power cut |
| ``swarm`` | the settings that a seed decides in advance: size, pace, mix of faults |
| ``cluster`` | real nodes on simulated machines, which are started and stopped |
| ``disk_log`` | the logs on the machines' disks, read from the bytes |
| ``damage`` | damage to durable data, and its budget: at most a minority until it is repaired |
| ``world`` | a cluster with its damage, and the checkers that run after every event |
| ``operator`` | adds, removes and replaces members and transfers the leadership |
| ``notices`` | lets leaders tell members how far they are durable |
| ``stranger`` | sends forged frames from outside the group |
| ``faults`` | injects faults |
| ``history`` | the clients' calls, with their times and answers |
| ``topics`` | the topics of a run, and the positions and records that clients have seen |
| ``workload``, ``journal`` | clients that append, read and call an actor |
| ``sinks`` | drivers that write to sinks as Spark does, and a reader of the topics |
| ``groups``, ``group_writers`` | other groups than 0: placed, written and read while a run has faults, and compared |
| ``group_moves`` | their hosts: added and removed while a run has faults, and compared with the members |
| ``group_removals`` | groups that are placed, used for a while, emptied and removed, and what has to be gone then |
| ``ordered`` | records in the streams of these groups, and the invariants of their order |
| ``ordered_appends`` | clients that wait for the global positions of their records, and the invariants of these |
| ``keyed_appends`` | a client whose keys move to other streams, and the order of each key |
| ``archives`` | an operator who archives the topics, a reader, and the invariants of the archive |
| ``stream_archives`` | the same of the topic with streams, when groups are placed |
| ``keyed`` | clients of a keyed topic, and the invariants of what they read |
| ``store``, ``run_format`` | the store of runs that members share, with its faults; runs as bytes, without pyarrow |
| ``order_readers`` | readers of these streams in their order, which are compared |
| ``tokens`` | an administrator, and clients whose tokens are revoked while they use them |
| ``violation`` | the error that a checker raises |
| ``checkers/`` | one property per file, of each event or of the whole history |
| ``ending`` | the final contents of disks, states and the clients' history |
| ``offline`` | the offline replay of the disks |
| ``run``, ``many`` | one seed, from swarm to verdict; many seeds, in many processes |
| ``trace`` | one line per event, and a digest of all lines |

The modules have an order that their imports follow (import-linter): for example, a cluster does not import its
checkers.

A run draws the swarm, starts nodes and clients, and continues with faults and work for some simulated seconds. Then all
faults are healed, all nodes restarted, and within a minute of simulated time the cluster must be RUNNING and equal, and
must have answered every client (liveness). Damaged members repair themselves at any time. At the end each member's log
is read back from its disk and compared with the clients' history, which must be linearizable.

Guarantees
  * The same seed gives the same trace, event for event, in any process.
  * The product contains no code for the simulator: faults come only through the host's interfaces.
  * ``viewstamp sim run --seed N`` repeats a failure; ``--trace`` prints every event.

Limits
  * Users' own actors are not run here: ``viewstamp.testing`` runs those, on worlds of this package.
"""
