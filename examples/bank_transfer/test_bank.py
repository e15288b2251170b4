"""A bank loses no money, even if its machines fail.

    cd examples/bank_transfer && pytest

`test_no_money_is_lost_by_the_hasty_bank` fails on purpose, because it shows how the simulator finds the mistake.
"""

import asyncio
import contextlib

from bank import Bank, HastyBank, OutOfFunds, UnknownAccount

from viewstamp.testing import ClusterFactory, MemberState, SimulatedCluster

DEPOSIT = 100


async def transfers(cluster: SimulatedCluster) -> None:
    """Let customers move money between accounts. Sometimes one of them mistypes an account."""
    bank = cluster.client().actor("bank", Bank)
    for name in ("ann", "bob", "eve"):
        await bank.open(name, DEPOSIT)

    async def customer(name: str) -> None:
        for _ in range(10):
            target = cluster.random.choice(["ann", "bob", "eve", "evve"])
            with contextlib.suppress(UnknownAccount, OutOfFunds):  # Then nothing was moved.
                await bank.transfer(name, target, cluster.random.randint(1, 50))
            await asyncio.sleep(cluster.random.uniform(0, 0.1))

    await asyncio.gather(*(customer(name) for name in ("ann", "bob", "eve")))
    assert await bank.total() == 3 * DEPOSIT


def no_money_is_lost(member: MemberState) -> None:
    """Check that the sum of all balances is the sum of the first deposits."""
    accounts = member.actor("bank", Bank).accounts
    assert sum(accounts.values()) == DEPOSIT * len(accounts)


def test_no_money_is_lost(viewstamp_cluster: ClusterFactory) -> None:
    """This test passes, because the bank checks both accounts before it takes money."""
    viewstamp_cluster(actors={"bank": Bank}).run(transfers, seeds=10, invariant=no_money_is_lost)


def test_no_money_is_lost_by_the_hasty_bank(viewstamp_cluster: ClusterFactory) -> None:
    """This test fails, and its error names the transfer that lost the money."""
    viewstamp_cluster(actors={"bank": HastyBank}).run(
        transfers, seeds=10, invariant=no_money_is_lost, check_each_command=True
    )
