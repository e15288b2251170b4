"""A replicated inventory that never sells more than it has, also while its leader is stopped.

    python examples/inventory.py                three nodes in this process, in a temporary directory
    python examples/inventory.py DIR/n1.toml    one member of a cluster; start one such process for each settings file

A service uses the second form; `viewstamp config new --nodes 3 DIR` writes the files.
"""

import asyncio
import sys

import viewstamp as vs


class OutOfStock(vs.CommandError):
    """The stock is smaller than the requested number. Nothing was reserved."""


class Inventory(vs.ReplicatedActor):
    """The stock of a shop. Every member has a copy, and applies the same commands in the order of the log."""

    def __init__(self) -> None:
        self.stock: dict[str, int] = {}

    @vs.command
    def receive(self, sku: str, n: int) -> int:
        """Add ``n`` pieces of ``sku``; return the new stock."""
        self.stock[sku] = self.stock.get(sku, 0) + n
        return self.stock[sku]

    @vs.command
    def reserve(self, sku: str, n: int) -> int:
        """Take ``n`` pieces of ``sku``; return the rest of the stock."""
        left = self.stock.get(sku, 0) - n
        if left < 0:
            raise OutOfStock(f"{n} of {sku} wanted, {left + n} left")
        self.stock[sku] = left
        return left

    @vs.query
    def available(self, sku: str) -> int:
        """Return the stock of ``sku``."""
        return self.stock.get(sku, 0)


async def sell(inventory: type[Inventory], sku: str, customers: int) -> int:
    """Let all customers reserve one piece each at the same time; return the number of those that got one."""

    async def customer() -> bool:
        try:
            await inventory.reserve(sku, 1)
        except OutOfStock:
            return False
        return True

    return sum(await asyncio.gather(*(customer() for _ in range(customers))))


async def demonstrate() -> None:
    """Run three nodes, and stop the leader while 1,000 customers try to reserve 600 pieces."""
    async with vs.local_cluster(nodes=3, actors={"inventory": Inventory}) as cluster:
        leader = next(node.id for node in cluster.nodes.values() if node.node_status["role"] == "leader")
        service = next(node for node in cluster.nodes.values() if node.id != leader)
        inventory = service.actor("inventory", Inventory)
        await inventory.receive("A-17", 600)
        selling = asyncio.create_task(sell(inventory, "A-17", 1000))
        await asyncio.sleep(0)
        await cluster.stop(leader)
        print(f"1,000 customers, 600 pieces, the leader {leader} gone: {await selling} sold", end=", ")
        print(f"{await inventory.available('A-17')} left")


async def serve(settings: str) -> None:
    """Run one member, add ten pieces to the stock, and sell ten."""
    async with vs.open_node(settings, actors={"inventory": Inventory}) as node:
        inventory = node.actor("inventory", Inventory)
        await inventory.receive("A-17", 10)
        print(f"{node.id} sold {await sell(inventory, 'A-17', 10)}")


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]) if sys.argv[1:] else demonstrate())
