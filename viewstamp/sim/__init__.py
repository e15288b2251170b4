"""The simulator: whole clusters of the real product on a simulated host, from one seed.

What is real in it: the consensus core, the WAL with its recovery and control file, the node with its server, links
and applier, the state machine, and the client. What is simulated is the host underneath: the event loop's clock, the
network, the disks, the randomness. So a run is what a cluster would have done, and a seed with a commit is the
whole reproduction of a failure.

| file | is |
| --- | --- |
| ``loop`` | an asyncio event loop in simulated time; processes that can be killed and paused |
| ``network`` | links with delay, loss, doubling, reordering, one-way partitions, broken connections |
| ``disk``, ``volume`` | disks of which a power cut leaves any subset of what was not synced |
| ``recording`` | the same rules for a real disk: record a real node, rebuild its directory as after a power cut |
| ``swarm`` | what a seed decides beforehand: size, pace, mix of faults |
| ``cluster`` | real nodes on simulated machines, which come and go |
| ``disk_log`` | what the machines' disks hold of the log, read from the bytes |
| ``damage`` | what disks lose or change that was durable, and the budget: a minority at most, until it is repaired |
| ``world`` | a cluster with its damage and the checkers that look at it after every event |
| ``operator`` | the one who adds, removes and replaces members and moves the leadership |
| ``stranger`` | the one who is no member, and sends forged frames |
| ``faults`` | the one who breaks things |
| ``history`` | what clients called, when, and what came of it |
| ``topics`` | the topics of a run, and what clients know and have seen of them |
| ``workload``, ``journal`` | clients that append, read and call an actor |
| ``sinks`` | drivers that write to sinks as Spark does, and a reader of the topics |
| ``violation`` | what a checker raises |
| ``checkers/`` | one property a file: what must hold after every event, and of the whole history |
| ``ending`` | what is there in the end: on disks, in states, in the clients' history |
| ``offline`` | the offline replay, of the disks as they are |
| ``run``, ``many`` | one seed, from swarm to verdict; many seeds, in many processes |
| ``trace`` | one line per event, and a digest over all |

The modules have an order, and imports follow it (import-linter): a cluster knows nothing of those that watch it.

A run: the swarm is drawn; nodes and clients start; faults and work go on for some simulated seconds; then everything
is healed and restarted, and within a minute of simulated time the cluster must be RUNNING, agree, and have
answered every client (liveness). Damaged members repair themselves, meanwhile and then. At the end each member's log is
read back from its disk and compared with the clients' history, which must be linearizable.

What it promises
  * The same seed gives the same trace, event for event, in any process.
  * Nothing in the product knows of it: faults come through the host's seams only.
  * ``viewstamp sim run --seed N`` repeats a failure; ``--trace`` prints every event.

What it lacks
  * Users' own actors: ``viewstamp.testing`` runs those, on worlds of this package.
"""
