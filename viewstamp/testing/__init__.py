"""Testing your own actors: the pytest plugin that runs them in simulated clusters that break.

The fixture is ``viewstamp_cluster``; pytest finds it once viewstamp is installed.

    async def transfers(cluster: SimulatedCluster) -> None:
        bank = cluster.client().actor("bank", Bank)
        await bank.deposit("ann", 100)
        ...

    def no_money_is_lost(member: MemberState) -> None:
        assert sum(member.actor("bank", Bank).accounts.values()) == 100

    def test_transfers(viewstamp_cluster: ClusterFactory) -> None:
        viewstamp_cluster(actors={"bank": Bank}).run(transfers, invariant=no_money_is_lost)

A *scenario* is a coroutine function; it runs as a program of its own beside the members, with the real client, in
simulated time. For each *seed* there is one cluster of real nodes on simulated clocks, networks and disks
(``viewstamp.sim``). While the scenarios run, members die, lose power, are cut off and stand still, as the seed has
drawn; when the scenarios have ended, or after some seconds, everything is healed. Then the scenarios have a minute of
simulated time to end, and the cluster to recover.

What is found, by the name that a failure says:

| finding | means |
| --- | --- |
| ScenariosPass | a scenario raised: one of its asserts does not hold, or it did not handle an error of a call |
| ScenariosEnd | a scenario has not ended a minute after the last fault; the failure says where it waits |
| Invariant | the invariant does not hold on a member; asked in the end, or after each command |
| StatesEqual | members that applied the same commands have different states: a command is not deterministic |
| CommandsEnd | a command raised what is no result but stops a node: ``OSError``, ``RecursionError`` and their like |
| QueriesChangeNothing | a query changed the state, on one member only |
| SnapshotsKeepState | a state does not come back from a snapshot as it was |
| Liveness, and any other | the cluster itself is wrong: please report the seed |

Before the first seed the classes are read by ``viewstamp.actors.replicated.lint``.

What it promises
  * The same seed, code and Python version give the same run, event for event, in any process, provided that scenarios
    take their dice from ``cluster.random`` and their time from the event loop.
  * A failure ends with the one command that repeats it.
  * Nothing of this is imported in pytest runs that do not ask for the fixture.
  * The classes run as they are: they are neither changed nor derived from.

The modules: ``factory`` is the fixture's value, and ``simulation`` what it runs, seed after seed. ``run`` is one seed.
``cluster`` is what a scenario sees, and ``member`` what an invariant sees. ``watched`` reports each command that a
member applies, and ``waiting`` finds where a scenario waits that does not end.

What it lacks
  * All members share one process: what differs between processes only (the order of a set of texts, an environment
    variable) is found by the linter or not at all.
  * Scenarios do not die; members do. Members all run the same version of a class.
"""

from viewstamp.testing.cluster import SimulatedCluster
from viewstamp.testing.factory import ClusterFactory
from viewstamp.testing.member import MemberState
from viewstamp.testing.run import Verdict
from viewstamp.testing.simulation import SeedFailedError, Simulation

__all__ = ["ClusterFactory", "MemberState", "SeedFailedError", "SimulatedCluster", "Simulation", "Verdict"]
