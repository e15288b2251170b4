"""One property a file: what holds of the product, whatever the faults. What does not hold raises ``Violation``.

| file | property |
| --- | --- |
| ``consensus`` | after every event: the protocol's invariants |
| ``durability`` | after every event: what is committed is on the disks of a majority |
| ``log_time`` | after every event: no minority moves log time away, and it never stands still |
| ``liveness`` | once faults have stopped, all that was asked for comes about |
| ``linearizability`` | each operation takes effect at one moment between its call and its answer |
| ``exactly_once`` | what was asked for once happened once, or not at all |
| ``sinks`` | a batch of a sink is visible once, whole and in order, or not at all |
| ``replicas`` | all members hold the same |
| ``replays`` | an offline replay of the disks shows what the members hold |
"""
