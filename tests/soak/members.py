"""The processes of the soak: nodes that reach each other through proxies, and are started, broken and watched."""

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
"""Time limit of a recovery on a busy machine, in seconds."""
SCRUB_SECONDS = 60.0
"""Seconds after its start at which a node begins to scrub the part of its log that the start did not read."""
_LOOK_SECONDS = 0.1
_ASK = ClientOptions(timeout=10.0, connect_timeout=1.0, silence=2.0)


def too_much(name: str, impaired: Iterable[str], members: Members) -> str:
    """Return why ``name`` must not lose data while ``impaired`` have lost some, because a majority must be intact.

    "" = it may.

    While a membership change is in progress, no member may: there are two majorities then, and their members change.
    """
    if members.is_changing:
        return "a change of the members is under way"
    voters = {name_of(voter) for voter in members.voters}
    broken = {*impaired, name} & voters
    if name not in voters or 2 * len(broken) >= len(voters):
        return f"{', '.join(sorted(broken)) or name} of {', '.join(sorted(voters))} would be impaired"
    return ""


class StuckError(AssertionError):
    """A recovery that should have happened by itself did not."""


class InvariantError(AssertionError):
    """The soak was about to break more than the cluster promises to survive, which would be the soak's own mistake."""


class SoakedProcesses(Processes):
    """A local cluster, its proxies, and the present damage to its disks.

    Invariants:
      * ``impaired`` are the nodes that lost data on disk and are not known to be intact again; they are a minority
        of the voters, both before and after a change in progress. Faults first ask :meth:`check_may_impair`
      * a node in ``up`` is started again when its process ends without a command, and ``ended`` records the reason
    """

    patience = PATIENCE_SECONDS

    def __init__(self, cluster: LocalCluster, board: Switchboard, admin: Client) -> None:
        super().__init__(cluster)
        self.board = board
        self.admin = admin
        """A client with the nodes' own addresses, without a proxy in between."""
        self.people: dict[str, Chaos] = {}
        """The network of each person's clients, by the person's name."""
        self.up: set[str] = set()
        self.impaired: dict[str, str] = {}
        self.ended: list[tuple[str, str, str]] = []
        """Nodes that ended without a command: name, class of the error, and message."""
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
        """Return a new client that reaches the nodes through their proxies.

        A person's client is subject to :meth:`estrange`.
        """
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
        """Cut a person off from nodes immediately; without nodes, restore all connections."""
        peers = {name: self.board.proxies[name].address for name in names}
        write_faults(self._home(person), [Fault(kind=FaultKind.PARTITION, peers=peers)] if peers else [])

    def _home(self, person: str) -> str:
        return os.path.join(self.cluster.directory, "people", person)

    # -- Starting and ending ---------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start the processes of nodes; from now on they are restarted whenever they end without a command."""
        await super().start(*names)
        self.up.update(names or self.names)

    async def kill(self, *names: str) -> None:
        """Kill nodes, as nearly as possible at the same moment."""
        self.up.difference_update(names)
        await super().kill(*names)

    async def stop(self, *names: str) -> None:
        """Stop nodes cleanly."""
        self.up.difference_update(names)
        await super().stop(*names)

    async def watch(self) -> None:
        """Restart every node that ends without a command, until cancelled."""
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
        """Check that at most a minority of the voters would have lost data if ``name`` did, too.

        Raises:
          InvariantError: it would be more than a minority, or the voters cannot be determined now.
        """
        try:
            members = await self.admin.list_members(timeout=3)
        except ViewstampError as error:
            raise InvariantError(f"the voters cannot be determined: {error}") from error
        complaint = too_much(name, self.impaired, members)
        if complaint:
            raise InvariantError(complaint)

    async def flip_bit(self, name: str, back: float) -> str:
        """Flip a bit in the log of a stopped node; return a description, or "" if the log is too short.

        The bit is in a segment that is no longer written: ``back`` 0 = in the last of these, towards 1 = in the first.
        """
        assert name not in self.up, "a running node would write over it"
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
        """Take away the data directory of a stopped node; return the place where it is kept."""
        assert name not in self.up, "a running node holds on to it"
        await self.check_may_impair(name)
        directory = self.node(name).directory
        self._lost += 1
        kept = f"{directory}.lost-{self._lost}"
        await asyncio.to_thread(os.rename, directory, kept)
        self.impaired[name] = f"wiped; its former contents are in {kept}"
        return kept

    def impose(self, name: str, *faults: Fault) -> None:
        """Inject faults into the disk of a node; none = end them."""
        with suppress(ViewstampError):  # Its directory was just wiped.
            write_faults(self.node(name).directory, faults)

    def heal(self) -> None:
        """End the faults of the network, the disks and the scheduler."""
        self.board.heal()
        for person in self.people:
            self.estrange(person)
        for name in self.names:
            self.impose(name)
            self.resume(name)

    # -- Members ---------------------------------------------------------------------------------------------

    async def make_node(self) -> str:
        """Write the settings of one more node and start it; return its name. It is not a member yet."""
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
        """Stop a removed member for good; its files stay."""
        await self.stop(name)
        self.cluster.forget_node(name)
        self.impaired.pop(name, None)

    # -- Inspecting ------------------------------------------------------------------------------------------

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the status of each node by its name; nodes without an answer are left out."""
        return {str(status["id"]): status for status in await self.admin.status() if status.get("reachable")}

    async def members(self) -> Members | None:
        """Return the members of the cluster; None = there is no leader now."""
        try:
            return await self.admin.list_members(timeout=3)
        except ViewstampError:
            return None

    async def leader(self) -> str:
        """Return the name of the leader; "" = there is none."""
        for name, status in (await self.statuses()).items():
            if status.get("role") == "leader" and status.get("lifecycle") == "running":
                return name
        return ""

    async def complaint_about(self, name: str) -> str:
        """Return why a node does not serve: not RUNNING, recovering, repairing, not a voter; "" = it serves."""
        status = (await self.statuses()).get(name)
        if status is None:
            return f"{name} does not answer"
        if status["lifecycle"] != "running":
            return f"{name} is {status['lifecycle']}: {status.get('refused_by') or status.get('repair') or ''}"
        if status.get("repair") or status.get("silent_until"):
            return f"{name} is recovering until {status.get('silent_until')}: {status.get('repair')}"
        try:
            members = await self.admin.list_members(timeout=3)
        except ViewstampError as error:
            return f"the members cannot be determined: {error}"
        if status["member_id"] not in members.voters or members.is_changing:
            return f"{status['member_id']} is not a voter of {members}"
        return ""

    async def rot_of(self, name: str) -> str:
        """Return the damage in the log of a node; "" = none."""
        found = await asyncio.to_thread(verify, RealDisk(), self.node(name).directory)
        return f"{name} runs, and has damage on its disk: {found.damage}" if found.verdict == "corruption" else ""

    async def is_level(self) -> bool:
        """Return whether all members hold and have applied the same records."""
        statuses = await self.statuses()
        ends = {(status.get("applied_index"), status.get("last_index")) for status in statuses.values()}
        return set(statuses) == set(self.names) and len(ends) == 1 and all(one == other for one, other in ends)

    async def wait_back(self, *names: str, patience: float = PATIENCE_SECONDS) -> None:
        """Wait until nodes serve again, by themselves. Raises StuckError.

        A start reads from the newest snapshot on, so older rot is left to the node's scrubber, which begins a minute
        after the start. Until then the node counts as impaired.
        """
        deadline = time.monotonic() + patience
        for name in names:
            while complaint := await self.complaint_about(name):
                if time.monotonic() > deadline:
                    raise StuckError(f"after {patience:g} s: {complaint} ({self.impaired.get(name, 'nothing lost')})")
                await asyncio.sleep(_LOOK_SECONDS)
        await self._look_for_rot(*names)

    async def wait_whole(self) -> None:
        """Wait until no node is impaired and all serve. Raises StuckError."""
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
        """Wait until all members hold and have applied the same records. Raises StuckError."""
        deadline = time.monotonic() + patience
        while not await self.is_level():
            if time.monotonic() > deadline:
                ends = {n: (s.get("applied_index"), s.get("last_index")) for n, s in (await self.statuses()).items()}
                raise StuckError(f"after {patience:g} s the members are not level: {ends}")
            await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def running(directory: Path, nodes: int) -> AsyncIterator[SoakedProcesses]:
    """Run a new cluster in ``directory`` that is RUNNING; all of its processes are ended afterwards."""
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
    """Write the settings of a node, with its proxy's address as the advertised one; return the file's path."""

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
