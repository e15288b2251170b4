"""Recovers the initial state of the core from a data directory, in three steps.

| step | does | effect if the process dies in it |
| --- | --- | --- |
| *open* (``data_dir``) | reads the control file, lists the snapshots | the same directory |
| *replay* (``replay``) | builds the state from snapshot and log; stores the running mark | a prefix of its writes, \
after which the next start does the same |
| *reconcile* (``repair``) | only after damage: fetches missing records from the other members, or marks this one as \
recovering; then the directory is opened and replayed again | the damaged directory, or a repaired one |

Opening and replaying block, and run in an executor of their own. Reconciling waits for other members without a limit.
Damage that is found while the node runs stops its parts, and recovery begins again with
:attr:`NodeRecovery.suspicion`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from viewstamp.consensus.membership import Membership
from viewstamp.errors import ClosedError, CorruptionError
from viewstamp.host.interfaces import Disk, Host, SerialExecutor
from viewstamp.host.logger import Logger
from viewstamp.ids import NodeId
from viewstamp.node.data_dir import DataDir
from viewstamp.node.options import NodeOptions
from viewstamp.node.repair.repair import Repairer, missing_beginnings
from viewstamp.node.replay import InitialState, Recovered, replay
from viewstamp.node.state_machine import StateMachine
from viewstamp.wal.log import Wal

__all__ = ["NodeRecovery"]

_REPAIRS_MAX = 4
"""Number of repairs in one start. If damage comes back more often, the disk should be replaced."""

ResultT = TypeVar("ResultT")


class NodeRecovery:
    """Recovers a node's directory for its core, at the start and at each restart within the process.

    Invariants:
      * an opened log is returned by :meth:`run`, or abandoned before any part of the node has written to it
    """

    def __init__(
        self,
        host: Host,
        machine: StateMachine,
        options: NodeOptions,
        *,
        members: Membership,
        hello: Callable[[], dict[str, object]],
        address_of: Callable[[NodeId], str | None],
        log: Logger,
    ) -> None:
        """Prepare the recovery of the directory; nothing is read yet.

        Args:
          host: the machine.
          machine: the state machine, to which nothing has been applied.
          options: of the node.
          members: the settings' hint, for a directory without a membership.
          hello: returns the HELLO of this node, without the fields from the control file.
          address_of: returns the address of a member that counts instead of the recorded one; None = there is none.
          log: for lines about damage and repairs.
        """
        self.repairer = Repairer(
            host,
            node=options.node,
            group=options.group,
            cluster=options.cluster,
            data_dir=options.data_dir,
            members=members,
            hello=hello,
            address_of=address_of,
            log=log,
        )
        self.suspicion: CorruptionError | None = None
        """Damage found while the node ran, to be repaired before the directory is opened."""
        self._host = host
        self._machine = machine
        self._options = options
        self._members = members
        self._logger = log
        self._initial = InitialState(machine)
        self._blocking = _BlockingWork(host.disk)
        self._wal: Wal | None = None
        self._is_closed = False

    async def run(self) -> Recovered:
        """Open and replay the directory; if that finds damage, reconcile and begin again, ``_REPAIRS_MAX`` times.

        If cancelled, it leaves the damaged directory, or a repaired one.

        Raises:
          ConfigError: another node's or cluster's directory, or files of a newer format.
          CorruptionError: damage that cannot be repaired; nothing was changed.
          ClosedError: the node was stopped meanwhile.
          StorageError: the disk failed; StorageFullError: there is no space for the files that are set aside.
        """
        suspicion, self.suspicion = self.suspicion, None
        if suspicion is not None:
            await self.repairer.repair(suspicion)
        for _ in range(_REPAIRS_MAX):
            try:
                recovered = await self.run_blocking(self._open_and_replay)
            except CorruptionError as error:
                if not await self.repairer.repair(error):
                    raise
                continue
            if not await self._repair_beginning(recovered):
                return self._hand_out(recovered)
        return self._hand_out(await self.run_blocking(self._open_and_replay))

    async def run_blocking(self, work: Callable[[], ResultT]) -> ResultT:
        """Run blocking work on the directory off the event loop; :meth:`close` waits for it."""
        return await self._blocking.run(work)

    async def close(self) -> None:
        """Cancel the recovery, and wait until nothing uses the directory. Idempotent."""
        self._is_closed = True
        await self.repairer.close()
        await self._blocking.close()
        self._abandon()

    def _open_and_replay(self) -> Recovered:
        self._initial.restore()
        self._abandon()
        options = self._options
        if options.group:
            self._host.disk.make_directory(options.data_dir)  # That of group 0 has the lock, so it exists.
        directory = DataDir.open(
            self._host, options.data_dir, node=options.node, cluster=options.cluster, group=options.group
        )
        return replay(
            directory,
            self._host,
            self._machine,
            options,
            members=self._members,
            on_wal=self._keep,
            check_stop=self._check_stop,
            log=self._logger,
        )

    async def _repair_beginning(self, recovered: Recovered) -> bool:
        for begin in missing_beginnings(recovered, recovered.stored.first_index):
            if await self.repairer.repair_beginning(begin):
                return True
        return False

    def _check_stop(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self._options.node} is stopping", remedy="ask another node")

    def _keep(self, wal: Wal) -> None:
        self._wal = wal

    def _hand_out(self, recovered: Recovered) -> Recovered:
        self._wal = None
        return recovered

    def _abandon(self) -> None:
        wal, self._wal = self._wal, None
        if wal is not None:
            wal.abandon()


class _BlockingWork:
    """Runs one piece of blocking work after the other, in an executor that a stop can wait for."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._executor: SerialExecutor[None] | None = None

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work`` and return its result. If cancelled, it goes on, and :meth:`close` waits for it."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

        def done(_: list[None], result: ResultT | BaseException) -> None:
            if isinstance(result, BaseException) and not future.done():
                future.set_exception(result)
            elif not isinstance(result, BaseException) and not future.done():
                future.set_result(result)

        self._executor = self._disk.executor("recovery", lambda _: work(), done)
        self._executor.put(None)
        try:
            result = await future
        except Exception:
            await self._executor.close()
            raise
        await self._executor.close()
        return result

    async def close(self) -> None:
        """Wait for the running work. Idempotent."""
        if self._executor is not None:
            await self._executor.close()
