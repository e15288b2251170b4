"""Properties that the product keeps under all faults, one per file. A broken property raises ``Violation``.

| file | property |
| --- | --- |
| ``consensus`` | after every event: the protocol's invariants |
| ``durability`` | after every event: committed records are on the disks of a majority |
| ``log_time`` | after every event: a minority cannot move log time, and it never stands still |
| ``liveness`` | once faults have stopped, every request completes |
| ``linearizability`` | each operation takes effect at one moment between its call and its answer |
| ``exactly_once`` | each request took effect once or not at all, as its client was answered |
| ``sinks`` | a batch of a sink is visible once, whole and in order, or not at all |
| ``replicas`` | all members hold the same records and states |
| ``replays`` | an offline replay of the disks shows the members' records |
"""
