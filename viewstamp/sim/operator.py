"""Operates the cluster: adds machines, removes and replaces members, transfers the leadership, one task at a time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from viewstamp.client.aio import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Members
from viewstamp.errors import RequestError
from viewstamp.ids import NodeId, name_of
from viewstamp.sim.cluster import Member
from viewstamp.sim.tokens import with_token
from viewstamp.sim.topics import PASSING
from viewstamp.sim.world import World

__all__ = ["Operator"]

_VOTERS_MAX = 5
_TRY_SECONDS = 0.2
_REMOVED_SECONDS = 1.0
"""The mean time for which a removed node still runs before it is stopped."""


class Operator:
    """Carries out one task at a time, and ignores requests meanwhile.

    Invariants:
      * a machine that is neither a member nor about to be one is retired, at the latest at the end
    """

    def __init__(self, world: World, entropy: random.Random) -> None:
        self._world = world
        self._entropy = entropy
        self._task: asyncio.Task[None] | None = None
        self._process = world.loop.process("operator")

    @property
    def is_done(self) -> bool:
        """Whether there is no task, and every machine left is a member."""
        return self._task is None or self._task.done()

    def change(self, member: Member) -> None:
        """Begin to add a machine, or to remove or replace ``member``."""
        kind = self._entropy.choice(("add", "remove", "replace"))
        self._begin(lambda client: self._change(client, kind, member))

    def transfer(self, member: Member) -> None:
        """Begin to transfer the leadership to ``member``."""
        self._begin(lambda client: self._transfer(client, member))

    def finish(self) -> None:
        """Begin to finish all tasks: no change is in progress, and machines that are not members are retired."""
        waited = self._task
        if waited is None:
            return

        async def end(_: Client) -> None:
            await asyncio.wait([waited])
            async with self._client() as client:  # Use the present machines, because all earlier ones may be gone.
                while True:
                    if await self._has_settled(client):
                        return
                    await asyncio.sleep(_TRY_SECONDS)

        self._task = None
        self._begin(end)

    def _begin(self, work: Callable[[Client], Awaitable[None]]) -> None:
        if self.is_done:
            self._task = self._process.spawn(self._run(work))
            self._task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.fail(error)

    async def _run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async with self._client() as client:
            await work(client)

    def _client(self) -> Client:
        return Client(
            self._world.addresses,
            network=self._world.network.view("operator"),
            entropy=self._entropy,
            options=with_token(self._world, ClientOptions(timeout=2.0)),
        )

    # -- Tasks -----------------------------------------------------------------------------------------------

    async def _transfer(self, client: Client, member: Member) -> None:
        try:
            await client.transfer_leadership(member.id)
        except (*PASSING, RequestError) as error:
            self._note(f"no transfer to {member.id}: {error}")

    async def _change(self, client: Client, kind: str, member: Member) -> None:
        """Try one change until it is made or is impossible; then stop the machines that are no longer members."""
        members = await self._members(client)
        if members is None or members.is_changing:
            return
        voters = {NodeId(voter) for voter in members.voters}
        newcomer = None
        if kind == "replace" or (kind == "add" and len(voters) < _VOTERS_MAX):
            newcomer = self._world.join()
        if newcomer is not None:
            self._world.bring_up(newcomer)
            voters.add(newcomer.name)
        elif kind != "remove":
            return
        if kind != "add":
            voters.discard(member.id)
        damages = self._world.damages
        if voters and member.id in members.voters and damages.allows_voters(voters):
            damages.planned.append(frozenset(voters))
            if await self._try(client, kind, member, newcomer):
                self._forget_plans()
        await asyncio.sleep(self._entropy.expovariate(1 / _REMOVED_SECONDS))
        self._retire()

    def _forget_plans(self) -> None:
        self._world.damages.planned.clear()
        self._world.damages.settle()

    async def _try(self, client: Client, kind: str, member: Member, newcomer: Member | None) -> bool:
        """Request a change until its outcome is certain; return whether it is."""
        self._note(f"{kind} {member.id} {newcomer.id if newcomer is not None else ''}")
        for _ in range(10):
            try:
                if newcomer is not None:
                    replaces = member.id if kind == "replace" else ""
                    await client.add_member(newcomer.name, newcomer.address, replaces=replaces)
                elif kind == "remove":
                    await client.remove_member(member.id)
                return True
            except RequestError as error:
                self._note(f"{kind} is refused: {error}")
                return True
            except PASSING as error:
                self._note(f"{kind} may not have happened: {error}")
                await asyncio.sleep(_TRY_SECONDS)
        return False

    async def _members(self, client: Client) -> Members | None:
        try:
            return await client.list_members()
        except PASSING:
            return None

    def _retire(self) -> None:
        """Stop the machines that are not members, if the newest membership is committed and not joint."""
        membership = self._world.disks.membership
        if membership is None or membership.is_joint:
            return
        names = {name_of(member) for member in membership.addresses}
        for member in list(self._world.members):
            if member.name not in names:
                self._note(f"{member.name} is no member any more: {', '.join(membership.addresses)}")
                self._world.retire(member)

    async def _has_settled(self, client: Client) -> bool:
        """Return whether no change is in progress; an unfinished one is cancelled."""
        members = await self._members(client)
        if members is None:
            return False
        running = {member.name for member in self._world.members}
        gone = [member for member in members.addresses if name_of(member) not in running]
        for member in gone:
            with contextlib.suppress(*PASSING, RequestError):
                await client.remove_member(member)
        if gone or members.is_changing:
            return False
        self._forget_plans()
        self._retire()
        return {name_of(member) for member in members.addresses} == {member.name for member in self._world.members}

    def _note(self, text: str) -> None:
        self._world.note("operator", "=", text)
