"""Tests for your own actors: a pytest plugin that runs them in simulated clusters with faults.

The fixture is ``viewstamp_cluster``; pytest finds it once viewstamp is installed.

    async def transfers(cluster: SimulatedCluster) -> None:
        bank = cluster.client().actor("bank", Bank)
        await bank.deposit("ann", 100)
        ...

    def no_money_is_lost(member: MemberState) -> None:
        assert sum(member.actor("bank", Bank).accounts.values()) == 100

    def test_transfers(viewstamp_cluster: ClusterFactory) -> None:
        viewstamp_cluster(actors={"bank": Bank}).run(transfers, invariant=no_money_is_lost)

A *scenario* is a coroutine function. It runs as a program of its own beside the members, with the real client, in
simulated time. For each *seed* there is one cluster of real nodes on simulated clocks, networks and disks
(``viewstamp.sim``). While the scenarios run, the seed decides when members die, lose power, are cut off or stand still.
When the scenarios have ended, or after some seconds, all faults are healed. Then the scenarios have a minute of
simulated time to end, and the cluster to recover.

A failure names one of these findings:

| finding | meaning |
| --- | --- |
| ScenariosPass | a scenario raised: one of its asserts does not hold, or it did not handle an error of a call |
| ScenariosEnd | a scenario has not ended a minute after the last fault; the failure shows the lines in which it waits |
| Invariant | the invariant does not hold on a member; checked at the end, or after each command |
| StatesEqual | members that applied the same commands have different states: a command is not deterministic |
| CommandsEnd | a command raised an error that stops a node, for example ``OSError`` or ``RecursionError`` |
| QueriesChangeNothing | a query changed the state, on one member only |
| SnapshotsKeepState | a state is different after a snapshot |
| Liveness, and any other | the cluster itself is wrong: please report the seed |

Before the first seed ``viewstamp.actors.replicated.lint`` reads the classes.

Promises
  * The same seed, code and Python version give the same run, event for event, in any process, if the scenarios take
    random numbers from ``cluster.random`` and time from the event loop.
  * A failure ends with the command that repeats it.
  * pytest runs that do not use the fixture import nothing of this package.
  * The classes are neither changed nor derived from.

The modules: ``simulation`` has the fixture's value, and runs seed after seed. ``run`` is one seed; it has the state
that an invariant gets, and finds the lines in which a scenario waits that does not end. A scenario gets ``cluster``.
``watched`` reports each command that a member applies.

Deliberate omissions
  * Several processes: all members share one, so differences between processes (for example the order of a set of
    strings, or an environment variable) are found by the linter or not at all.
  * Scenarios do not die; members do. All members run the same version of a class.
"""

from viewstamp.testing.cluster import SimulatedCluster
from viewstamp.testing.run import MemberState, Verdict
from viewstamp.testing.simulation import ClusterFactory, SeedFailedError, Simulation

__all__ = ["ClusterFactory", "MemberState", "SeedFailedError", "SimulatedCluster", "Simulation", "Verdict"]
