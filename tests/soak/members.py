"""The processes of the soak: nodes that reach each other through proxies, started, broken and watched over."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.processes import Processes
from tests.soak import cell
from tests.soak.proxy import Switchboard
from viewstamp.client import Client
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import Members
from viewstamp.config import load_settings, node_file
from viewstamp.config.create import free_addresses
from viewstamp.embed.compose import real_host
from viewstamp.errors import ConfigError, UnavailableError, ViewstampError
from viewstamp.host.chaos import Chaos, Fault, FaultKind, write_faults
from viewstamp.host.disk import RealDisk
from viewstamp.ids import NodeId, name_of
from viewstamp.local import damage
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node import LocalNode
from viewstamp.local.target import ClusterTarget
from viewstamp.wal.format import parse_segment_name
from viewstamp.wal.offline import verify

__all__ = ["CELL", "InvariantError", "SoakedProcesses", "StuckError", "running", "too_much"]

CELL = "cell"
"""The actor's name."""
SEGMENT_BYTES = 128 * 1024
PATIENCE_SECONDS = 90.0
"""So long something may take that happens by itself, on a machine that does much else."""
SCRUB_SECONDS = 60.0
"""So long after its start a node looks for rot where it does not look at its start."""
_LOOK_SECONDS = 0.1
_ASK = ClientOptions(timeout=10.0, connect_timeout=1.0, silence=2.0)


def too_much(name: str, impaired: Iterable[str], members: Members) -> str:
    """Say why ``name`` must not lose anything beside ``impaired``: a majority has to be whole at any time; "" = it may.

    While a change is under way, nobody may: there are two majorities then, and who belongs to them moves on.
    """
    if members.is_changing:
        return "a change of the members is under way"
    voters = {name_of(voter) for voter in members.voters}
    broken = {*impaired, name} & voters
    if name not in voters or 2 * len(broken) >= len(voters):
        return f"{', '.join(sorted(broken)) or name} of {', '.join(sorted(voters))} would be impaired"
    return ""


class StuckError(AssertionError):
    """What should have happened by itself did not."""


class InvariantError(AssertionError):
    """The soak was about to break more than it may: the mistake would be its own."""


class SoakedProcesses(Processes):
    """A local cluster, its proxies, and what is wrong with its disks at present.

    Invariants:
      * ``impaired`` are the nodes whose disk lost something and that are not known to be whole again; they are a
        minority of the voters, before and after a change that is under way. :meth:`check_may_impair` is asked first
      * a node of ``up`` whose process ends without having been told is started again, and ``ended`` says why it ended
    """

    patience = PATIENCE_SECONDS

    def __init__(self, cluster: LocalCluster, board: Switchboard, admin: Client) -> None:
        super().__init__(cluster)
        self.board = board
        self.admin = admin
        """A client whose first addresses are the nodes' own: no proxy stands before it."""
        self.people: dict[str, Chaos] = {}
        """By name: the network that a person's clients have."""
        self.up: set[str] = set()
        self.impaired: dict[str, str] = {}
        self.ended: list[tuple[str, str, str]] = []
        """Which nodes ended by themselves: their names, the class of the error, and what it said."""
        self._lost = 0

    @classmethod
    async def create(cls, directory: Path, nodes: int, board: Switchboard) -> SoakedProcesses:
        """Write the settings of a new cluster; nothing is started."""
        names = [f"n{number}" for number in range(1, nodes + 1)]
        own = dict(zip(names, free_addresses(nodes), strict=True))
        members = {name: await board.open(name, address) for name, address in own.items()}
        shutil.copy(str(cell.__file__), directory / "cell_of_the_soak.py")
        for name in names:
            _write_settings(directory, name, own[name], members[name], members, {}, cluster=directory.name)
        cluster = await asyncio.to_thread(LocalCluster.open, directory)
        return cls(cluster, board, ClusterTarget(list(own.values()), cluster.id).connect(options=_ASK))

    def client(self, options: ClientOptions, person: str = "") -> Client:
        """Return a new client, which reaches the nodes through their proxies; a person's, unless :meth:`estrange`d."""
        target = self.cluster.target
        if not person:
            return target.connect(options=options)
        if person not in self.people:
            os.makedirs(self._home(person), exist_ok=True)
            self.people[person] = Chaos(self._home(person), real_host())
        network = self.people[person].host.network
        entropy = random.SystemRandom()
        return Client(target.addresses, network=network, entropy=entropy, cluster_id=target.cluster_id, options=options)

    def estrange(self, person: str, *names: str) -> None:
        """Cut a person off from nodes, at once; nobody = from none any more."""
        peers = {name: self.board.proxies[name].address for name in names}
        write_faults(self._home(person), [Fault(kind=FaultKind.PARTITION, peers=peers)] if peers else [])

    def _home(self, person: str) -> str:
        return os.path.join(self.cluster.directory, "people", person)

    # -- Starting and ending ---------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start the processes of nodes, which from now on are started again whenever they end by themselves."""
        await super().start(*names)
        self.up.update(names or self.names)

    async def kill(self, *names: str) -> None:
        """Kill at the same moment, as far as there is one."""
        self.up.difference_update(names)
        await super().kill(*names)

    async def stop(self, *names: str) -> None:
        """Stop cleanly."""
        self.up.difference_update(names)
        await super().stop(*names)

    async def watch(self) -> None:
        """Start again whoever ends by itself, until cancelled."""
        while True:
            for name in sorted(self.up):
                if name in self.cluster.nodes and self.node(name).pid() is None and name in self.up:
                    words = self.node(name).last_words()
                    self.ended.append((name, type(words).__name__, words.message))
                    await self.start(name)
            with suppress(ViewstampError):
                await self._look_for_rot(*self.impaired)
            await asyncio.sleep(0.3)

    # -- Breaking --------------------------------------------------------------------------------------------

    async def check_may_impair(self, name: str) -> None:
        """Check that with ``name`` no more than a minority of the voters would have lost anything.

        Raises:
          InvariantError: it would be more, or nobody can say now who the voters are.
        """
        try:
            members = await self.admin.list_members(timeout=3)
        except ViewstampError as error:
            raise InvariantError(f"nobody says who the voters are: {error}") from error
        complaint = too_much(name, self.impaired, members)
        if complaint:
            raise InvariantError(complaint)

    async def flip_bit(self, name: str, back: float) -> str:
        """Flip a bit in the log of a node that is down; return what was done, "" = there is too little in it.

        In a segment that is not written any more: ``back`` 0 = the last of these, towards 1 = the first.
        """
        assert name not in self.up, "what runs would write over it"
        await self.check_may_impair(name)
        directory = self.node(name).directory
        segments = await asyncio.to_thread(os.listdir, os.path.join(directory, "wal"))
        sealed = sorted(number for each in segments if (number := parse_segment_name(each)) is not None)[:-1]
        if not sealed:
            return ""
        try:
            done = await asyncio.to_thread(damage.flip_bit, directory, segment=sealed[-1 - int(back * len(sealed))])
        except ConfigError:
            return ""
        self.impaired[name] = done.sentence
        return done.sentence

    async def wipe(self, name: str) -> str:
        """Take the data directory of a node away that is down; return where it is kept."""
        assert name not in self.up, "what runs holds on to it"
        await self.check_may_impair(name)
        directory = self.node(name).directory
        self._lost += 1
        kept = f"{directory}.lost-{self._lost}"
        await asyncio.to_thread(os.rename, directory, kept)
        self.impaired[name] = f"wiped; what it held is in {kept}"
        return kept

    def impose(self, name: str, *faults: Fault) -> None:
        """Have a node suffer from its disk; none = no more."""
        with suppress(ViewstampError):  # Its directory was wiped just now.
            write_faults(self.node(name).directory, faults)

    def heal(self) -> None:
        """End what the network, the disks and the scheduler do."""
        self.board.heal()
        for person in self.people:
            self.estrange(person)
        for name in self.names:
            self.impose(name)
            self.resume(name)

    # -- Members ---------------------------------------------------------------------------------------------

    async def make_node(self) -> str:
        """Make the settings of one more node, and start it; return its name. It is no member yet."""
        used = [int(name[1:]) for name in self.board.proxies]
        name = f"n{max(used) + 1}"
        own = free_addresses(1)[0]
        address = await self.board.open(name, own)
        members = await self.admin.list_members()
        hint = {str(name_of(voter)): at for voter, at in members.voters.items()}
        directory = Path(self.cluster.directory)
        file = _write_settings(directory, name, own, address, hint, {name: address}, cluster=self.cluster.id)
        node = LocalNode(load_settings(file, environment={}).settings, file)
        self.cluster.nodes[node.id] = node
        await self.start(name)
        return name

    async def retire(self, name: str) -> None:
        """Stop a node that is no member any more, for good; what it held stays."""
        await self.stop(name)
        self.cluster.forget_node(name)
        self.impaired.pop(name, None)

    # -- Looking ---------------------------------------------------------------------------------------------

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """Return what each node says of itself, by its name; those that say nothing are left out."""
        return {str(status["id"]): status for status in await self.admin.status() if status.get("reachable")}

    async def members(self) -> Members | None:
        """Return who belongs to the cluster; None = nobody leads now."""
        try:
            return await self.admin.list_members(timeout=3)
        except ViewstampError:
            return None

    async def leader(self) -> str:
        """Return the name of who leads; "" = nobody."""
        for name, status in (await self.statuses()).items():
            if status.get("role") == "leader" and status.get("lifecycle") == "running":
                return name
        return ""

    async def complaint_about(self, name: str) -> str:
        """Say why a node does not do what it is there for: not RUNNING, silent, repairing, no voter; "" = it does."""
        status = (await self.statuses()).get(name)
        if status is None:
            return f"{name} does not answer"
        if status["lifecycle"] != "running":
            return f"{name} is {status['lifecycle']}: {status.get('refused_by') or status.get('repair') or ''}"
        if status.get("repair") or status.get("silent_until"):
            return f"{name} is silent until {status.get('silent_until')}: {status.get('repair')}"
        try:
            members = await self.admin.list_members(timeout=3)
        except ViewstampError as error:
            return f"nobody says who the members are: {error}"
        if status["member_id"] not in members.voters or members.is_changing:
            return f"{status['member_id']} is not a voter of {members}"
        return ""

    async def rot_of(self, name: str) -> str:
        """Say what is wrong in the log of a node; "" = nothing."""
        found = await asyncio.to_thread(verify, RealDisk(), self.node(name).directory)
        return f"{name} runs, and has damage on its disk: {found.damage}" if found.verdict == "corruption" else ""

    async def is_level(self) -> bool:
        """Say whether all members hold and have applied the same."""
        statuses = await self.statuses()
        ends = {(status.get("applied_index"), status.get("last_index")) for status in statuses.values()}
        return set(statuses) == set(self.names) and len(ends) == 1 and all(one == other for one, other in ends)

    async def wait_back(self, *names: str, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until nodes do what they are there for, by themselves. Raises StuckError.

        Rot that a start does not meet, because it reads from the newest snapshot on, is left to the node's scrubber,
        which looks a minute after the start: until then the node counts as impaired.
        """
        deadline = time.monotonic() + patience
        for name in names:
            while complaint := await self.complaint_about(name):
                if time.monotonic() > deadline:
                    raise StuckError(f"after {patience:g} s: {complaint} ({self.impaired.get(name, 'nothing lost')})")
                await asyncio.sleep(_LOOK_SECONDS)
        await self._look_for_rot(*names)

    async def wait_whole(self) -> None:
        """Wait until no node is impaired, and all do what they are there for. Raises StuckError."""
        deadline = time.monotonic() + PATIENCE_SECONDS + SCRUB_SECONDS
        await self.wait_back(*self.names)
        while self.impaired:
            if time.monotonic() > deadline:
                raise StuckError(f"not repaired: {self.impaired}")
            await asyncio.sleep(1)
            await self._look_for_rot(*self.names)
        await self.wait_back(*self.names)

    async def _look_for_rot(self, *names: str) -> None:
        for name in self.impaired.keys() & {*names}:
            if not await self.complaint_about(name) and not await self.rot_of(name):
                self.impaired.pop(name, None)

    async def wait_level(self, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until all members hold and have applied the same. Raises StuckError."""
        deadline = time.monotonic() + patience
        while not await self.is_level():
            if time.monotonic() > deadline:
                ends = {n: (s.get("applied_index"), s.get("last_index")) for n, s in (await self.statuses()).items()}
                raise StuckError(f"after {patience:g} s the members are not level: {ends}")
            await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def running(directory: Path, nodes: int) -> AsyncIterator[SoakedProcesses]:
    """Run a new cluster in ``directory``, RUNNING; no process of it is left behind."""
    board = Switchboard()
    try:
        processes = await SoakedProcesses.create(directory, nodes, board)
        async with processes.admin:
            try:
                await processes.run()
                yield processes
            finally:
                for chaos in processes.people.values():
                    chaos.stop()
                processes.up.clear()
                for node in processes.cluster.nodes.values():
                    with suppress(UnavailableError):
                        await node.kill()
    finally:
        await board.close()


def _write_settings(
    directory: Path,
    name: str,
    listen: str,
    advertise: str,
    members: Mapping[str, str],
    learners: Mapping[str, str],
    *,
    cluster: str,
) -> str:
    """Write the settings of a node, which is told to others by its proxy's address; return the file's path."""

    def table(addresses: Mapping[str, str]) -> str:
        return "{" + ", ".join(f'"{node}" = {json.dumps(address)}' for node, address in addresses.items()) + "}"

    file = node_file(str(directory), NodeId(name))
    Path(file).write_text(
        f'[node]\nid = "{name}"\ndata_dir = "{name}"\nlisten = "{listen}"\nadvertise = "{advertise}"\nchaos = true\n'
        f'\n[cluster]\nid = "{cluster}"\nmembers = {table(members)}\nlearners = {table(learners)}\n'
        f"\n[wal]\nsegment_bytes = {SEGMENT_BYTES}\n"
        f"\n[snapshots]\nlog_bytes = {32 * SEGMENT_BYTES}\n"
        "\n[timeouts]\nelection_ms = 500\n"
        f'\n[actors]\n{CELL} = "cell_of_the_soak:Cell"\n',
        encoding="utf-8",
    )
    return file
