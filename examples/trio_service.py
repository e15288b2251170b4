r"""Quotas that all processes of a trio service share. Each process is a member of the cluster; no quota is exceeded.

    python examples/trio_service.py                     three members in this process, and customers that try it
    python examples/trio_service.py DIR/n1.toml 8001    one member, which answers on port 8001 until Ctrl+C

A service uses the second form; `viewstamp config new --nodes 3 DIR` writes the files. A customer sends lines:

    $ printf 'take ada 30\nshow ada\ntake ada 80\n' | nc 127.0.0.1 8001
    ok 70
    ok 70
    no: 70 left
"""

import sys
import tempfile
from contextlib import suppress
from functools import partial

import trio

import viewstamp as vs
from viewstamp.config import create_cluster, node_file
from viewstamp.trio import EmbeddedNode, open_node

TOTAL = 100


class Exhausted(vs.CommandError):
    """The rest of the quota is smaller than the requested number. Nothing was taken."""


class Quota(vs.ReplicatedActor):
    """The rest of one customer's quota. Each customer has an instance, and each member has a copy of it."""

    def __init__(self) -> None:
        self.left = TOTAL

    @vs.command
    def take(self, n: int) -> int:
        """Take ``n``; return the rest."""
        if n > self.left:
            raise Exhausted(f"{self.left} left")
        self.left -= n
        return self.left

    @vs.query
    def show(self) -> int:
        """Return the rest."""
        return self.left


async def reply(node: EmbeddedNode, line: str) -> str:
    """Return the answer to one line of a customer."""
    match line.split():
        case ["take", customer, n] if n.isdecimal():
            call = node.actor("quota", Quota, key=customer).take(int(n))
        case ["show", customer]:
            call = node.actor("quota", Quota, key=customer).show()
        case _:
            return "no: say take CUSTOMER N, or show CUSTOMER"
    try:
        # To limit the wait, set a deadline by trio's means. A call that is cancelled after it was sent may still be
        # carried out. With ``timeout=`` instead, the error states whether that is possible.
        return f"ok {await call}"
    except Exhausted as error:
        return f"no: {error}"
    except vs.ViewstampError as error:
        return f"failed: {error}"


async def serve(node: EmbeddedNode, stream: trio.SocketStream) -> None:
    """Answer the lines of one customer."""
    with suppress(trio.BrokenResourceError):
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await stream.send_all((await reply(node, line.decode(errors="replace"))).encode() + b"\n")


class Member:
    """One process of the service. The demonstration runs three of them in this process."""

    def __init__(self, settings: str) -> None:
        self.settings = settings
        self.node: EmbeddedNode
        self.port = 0
        self.stop = trio.CancelScope()

    async def run(self, port: int, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve on ``port`` until ``stop`` is cancelled; 0 = any free port."""
        with self.stop:
            async with open_node(self.settings, actors={"quota": Quota}) as self.node, trio.open_nursery() as nursery:
                answer = partial(serve, self.node)
                (listener,) = await nursery.start(partial(trio.serve_tcp, answer, port, host="127.0.0.1"))
                self.port = listener.socket.getsockname()[1]
                task_status.started()


async def customer(port: int, name: str, granted: list[str]) -> None:
    """Take 1 at a time until the quota is used up."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        while True:
            await stream.send_all(f"take {name} 1\n".encode())
            answered = (await stream.receive_some()).decode()
            if not answered.startswith("ok"):
                return
            granted.append(name)


async def demonstrate() -> None:
    """Let customers take from two members at the same time, while the third one, the leader, is stopped."""
    granted: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        members = [Member(node_file(directory, str(node))) for node in create_cluster(directory, 3)]
        async with trio.open_nursery() as running:
            async with trio.open_nursery() as starting:  # All at once: each waits for a majority.
                for member in members:
                    starting.start_soon(running.start, member.run, 0)
            members.sort(key=lambda member: member.node.node_status["role"] == "leader")
            leader = members.pop()
            async with trio.open_nursery() as customers:
                for name in ("ada", "bob", "eve"):
                    for member in members * 2:
                        customers.start_soon(customer, member.port, name, granted)
                leader.stop.cancel()
            print(f"{leader.node.id} led and went away; granted:", end=" ")
            print(", ".join(f"{name} {granted.count(name)}" for name in ("ada", "bob", "eve")), f"of {TOTAL} each")
            running.cancel_scope.cancel()


if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            trio.run(Member(sys.argv[1]).run, int(sys.argv[2]))
        else:
            trio.run(demonstrate)
    except* KeyboardInterrupt:
        print("stopped")
