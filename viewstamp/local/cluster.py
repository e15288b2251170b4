"""A cluster in a directory of this machine: one settings file for each node, and their processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from viewstamp.config import create_cluster, create_node, load_settings, make_certificates, node_file
from viewstamp.errors import (
    ConfigError,
    NoQuorumError,
    UnavailableError,
    ViewstampError,
)
from viewstamp.host.private import open_private
from viewstamp.ids import NodeId, name_of
from viewstamp.local.node import LocalNode, is_process_of
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.flags import DEFAULT_DIRECTORY, dir_flag, program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewstamp.host.tls import TlsFiles


__all__ = ["REMOVED", "LocalCluster", "settings_files"]

STATUS_SECONDS: Final = 0.1
POLL_SECONDS: Final = 0.02


REMOVED: Final = ".removed"
"""The suffix that the settings file of a removed member gets."""

_NAME: Final = re.compile(r"n[1-9][0-9]*")
_USED: Final = re.compile(r"n([0-9]+)(?:\.|$)")


class LocalCluster:
    """A directory with the settings of a local cluster, and its nodes."""

    def __init__(self, directory: str, nodes: list[LocalNode]) -> None:
        self.directory = directory
        self.nodes = {node.id: node for node in nodes}
        self.id = nodes[0].settings.cluster.id
        self.outsiders: list[LocalNode] = []
        """Nodes that run and are not members, as of the last ``wait_running``."""

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> LocalCluster:
        """Read the settings of the cluster in ``directory``.

        Raises:
          ConfigError: there is no cluster, or its files do not belong together.
        """
        path = os.path.abspath(directory)
        names = _names(path)
        if not names:
            raise ConfigError(
                f"there is no cluster in {path}",
                remedy=f"create one with `{program()} cluster start{dir_flag(path, DEFAULT_DIRECTORY)}`, "
                "or name another with --dir or --cluster",
            )
        nodes: list[LocalNode] = []
        for name in names:
            file = node_file(path, name)
            settings = load_settings(file, environment={}).settings
            cluster = nodes[0].settings.cluster.id if nodes else settings.cluster.id
            if settings.cluster.id != cluster or settings.node.id != name:
                raise ConfigError(
                    f"{file} is for node {settings.node.id} of cluster {settings.cluster.id}, "
                    f"not for {name} of {cluster}",
                    remedy="all files in one directory belong to one cluster: put back the file of this cluster",
                )
            nodes.append(LocalNode(settings, file))
        return cls(path, nodes)

    @classmethod
    def open_or_create(
        cls,
        directory: str | os.PathLike[str],
        nodes: int | None,
        settings: Mapping[str, str] | None = None,
        *,
        chaos: bool = True,
        tls: bool = False,
    ) -> LocalCluster:
        """Open the cluster in ``directory``, or create one of ``nodes`` (None: three) nodes.

        ``settings`` (``section.key`` to text) go into the files of a new cluster; an existing one must have them. With
        ``tls`` a new cluster gets certificates, and an existing one must have them. With
        ``chaos`` the nodes of a new cluster obey ``viewstamp chaos``, which adds some function calls to each write.

        Raises:
          ConfigError: a cluster with another size or other settings exists, or the new one cannot be created.
        """
        path = os.path.abspath(directory)
        settings = settings or {}
        if not _names(path):
            _check_actors(settings, path)
            create_cluster(path, 3 if nodes is None else nodes, settings, chaos=chaos)
            if tls:
                make_certificates(path)
        cluster = cls.open(path)
        if tls and cluster.tls is None:
            raise ConfigError(
                f"the cluster in {path} has no TLS",
                remedy="stop all of its nodes, run `viewstamp tls new` for its directory, and start them again",
            )
        for node in cluster.nodes.values():
            node.check_settings(settings)
        if nodes is not None and nodes != len(cluster.nodes):
            raise ConfigError(
                f"the cluster in {path} has {len(cluster.nodes)} nodes, not {nodes}",
                remedy="leave --nodes out, or name another directory with --dir",
            )
        return cluster

    def add_node(self, name: str, members: Mapping[NodeId, str]) -> LocalNode:
        """Create the settings of a node that is to join, like those of the first node; "" = the next free name.

        ``members`` are the present voters. A name that was ever used in this directory is not free.

        Raises:
          ConfigError: the name is not nK, or was used before.
        """
        used = [int(found[1]) for entry in os.listdir(self.directory) if (found := _USED.match(entry))]
        name = name or f"n{max(used) + 1}"
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name} cannot name a local node", remedy="use n and a number, such as n4, or no name")
        like = next(iter(self.nodes.values()))
        file = create_node(self.directory, name, like.settings, like.file, members)
        if self.tls is not None:
            try:
                make_certificates(self.directory)
            except BaseException:
                os.remove(file)
                raise
        node = LocalNode(load_settings(file, environment={}).settings, file)
        self.nodes[node.id] = node
        return node

    def discard_node(self, node: LocalNode) -> None:
        """Delete the settings and the data of a node that never was a member. Its process must have ended."""
        del self.nodes[node.id]
        os.remove(node.file)
        shutil.rmtree(node.directory, ignore_errors=True)

    def forget_node(self, name: str) -> str:
        """Set aside the settings of a node that is no member any more; return their new path. Its data stays."""
        node = self.nodes.pop(NodeId(name))
        os.rename(node.file, node.file + REMOVED)
        return node.file + REMOVED

    def node(self, name: str) -> LocalNode:
        """Return the node called ``name``. Raises ConfigError if there is none."""
        if name not in self.nodes:
            raise ConfigError(
                f"there is no node {name} in {self.directory}; there are {', '.join(self.nodes)}",
                remedy="name one of these",
            )
        return self.nodes[name]  # type: ignore[index]

    @property
    def target(self) -> ClusterTarget:
        """The addresses and identities to which a client connects."""
        names = {node.address: str(node.id) for node in self.nodes.values()}
        expected = {node.address: node.identity for node in self.nodes.values()}
        where = dir_flag(self.directory, DEFAULT_DIRECTORY)
        return ClusterTarget(list(names), self.id, names, expected, where, self.tls)

    @property
    def tls(self) -> TlsFiles | None:
        """The files by which commands connect: those of the first node that has them. None = without TLS."""
        return next((files for node in self.nodes.values() if (files := node.settings.tls.files) is not None), None)

    def spawn_missing(self) -> list[LocalNode]:
        """Start every node that does not run; return the started ones."""
        with self._held():
            missing = [node for node in self.nodes.values() if node.pid() is None]
            for node in missing:
                node.spawn()
        return missing

    async def start(self, timeout: float) -> list[LocalNode]:
        """Start every node that does not run, and wait until all are RUNNING; return the started ones.

        If it is cancelled, the nodes that it started are stopped again.

        Raises:
          UnavailableError: not all are RUNNING within ``timeout`` seconds, or a process ended; then with its error.
        """
        started = self.spawn_missing()
        try:
            await self.wait_running(self.nodes.values(), timeout)
        except asyncio.CancelledError:
            await asyncio.gather(*(node.stop(timeout) for node in started), return_exceptions=True)
            raise
        return started

    def spawn(self, node: LocalNode) -> None:
        """Start one node unless it runs."""
        with self._held():
            if node.pid() is None:
                node.spawn()

    async def wait_running(self, nodes: Iterable[LocalNode], timeout: float) -> None:
        """Wait until the process of each of ``nodes`` reports that it is RUNNING, or that it is no member.

        Only the processes of this directory count: each is asked at its own address, has to prove its identity, and
        has to have the process number in the directory's pid file.

        Raises:
          UnavailableError: not all are RUNNING within ``timeout`` seconds, or a process ended; then with its error.
        """
        waiting = {node.id: node for node in nodes}
        deadline = time.monotonic() + timeout
        lifecycles: dict[str, str] = {}
        self.outsiders = []
        async with self.target.connect() as client:
            while waiting:
                for node in waiting.values():
                    if node.pid() is None:
                        raise node.last_words()
                statuses = await client.status()
                members = _running_members(statuses)
                for status in statuses:
                    name = str(status.get("id") or self.target.names.get(status["address"]))
                    lifecycles[name] = status.get("lifecycle") or f"not reachable ({status.get('error')})"
                    for peer, why in (status.get("refused_by") or {}).items():
                        lifecycles[name] += f"; {peer} refuses it: {why}"
                    asked = waiting.get(NodeId(name))
                    if asked is None:
                        continue
                    if status["reachable"] and not is_process_of(asked, status):
                        lifecycles[name] = f"not started: another process ({status['process']}) answers in its place"
                    elif members and asked.id not in members:
                        self.outsiders.append(waiting.pop(asked.id))
                    elif str(status.get("lifecycle")).lower() == "running":
                        del waiting[asked.id]
                if waiting and time.monotonic() > deadline:
                    raise self._not_running(waiting.values(), statuses, lifecycles, timeout)
                if waiting:
                    await asyncio.sleep(STATUS_SECONDS)

    def _not_running(
        self,
        waiting: Collection[LocalNode],
        statuses: Sequence[Mapping[str, Any]],
        lifecycles: Mapping[str, str],
        timeout: float,
    ) -> ViewstampError:
        from viewstamp.doctor.status import nobody_leads, summary

        states = ", ".join(f"{node.id} is {lifecycles.get(node.id, 'not reachable')}" for node in waiting)
        detail = f"not RUNNING within {timeout:g} s: {states}"
        error = nobody_leads(summary(statuses, self.target.names)["nodes"], self.target.where, is_read=False)
        if isinstance(error, NoQuorumError):
            error.message += f" ({detail})"
            return error
        return UnavailableError(detail, remedy=f"{error.remedy}; and read {next(iter(waiting)).log_file}")

    async def wait_until(
        self, holds: Callable[[Mapping[str, Any]], bool], timeout: float, otherwise: str
    ) -> Mapping[str, Any]:
        """Return the summary of the nodes' statuses (``doctor.status.summary``) as soon as it ``holds``.

        Raises:
          UnavailableError: it does not hold within ``timeout`` seconds; ``otherwise`` is the message.
        """
        from viewstamp.doctor.status import summary

        deadline = time.monotonic() + timeout
        async with self.target.connect() as client:
            while not holds(found := summary(await client.status(), self.target.names)):
                if time.monotonic() > deadline:
                    files = ", ".join(node.log_file for node in self.nodes.values())
                    raise UnavailableError(f"{otherwise} within {timeout:g} s", remedy=f"read {files}")
                await asyncio.sleep(POLL_SECONDS)
        return found

    async def leader(self, timeout: float) -> tuple[LocalNode, int]:
        """Return the leader and its term. Raises UnavailableError as :meth:`wait_until` does."""
        found = await self.wait_until(lambda state: state["leader"] is not None, timeout, "no node leads")
        return self.node(found["leader"]), found["term"]

    async def stop(self, timeout: float, nodes: Sequence[LocalNode] = ()) -> list[LocalNode]:
        """Stop ``nodes``, by default all, cleanly and at the same time; return those that ran.

        Raises:
          UnavailableError: a node has not stopped within ``timeout`` seconds.
        """
        nodes = nodes or list(self.nodes.values())
        results = await asyncio.gather(*(node.stop(timeout) for node in nodes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [node for node, ran in zip(nodes, results, strict=True) if ran]

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Prevent other commands from starting the same nodes meanwhile."""
        with open(os.path.join(self.directory, "cluster.lock"), "wb", opener=open_private) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def _running_members(statuses: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of the members from the status of a RUNNING leader; empty = none answers."""
    for status in statuses:
        if status.get("role") == "leader" and status.get("lifecycle") == "running":
            return {name_of(member) for member in status.get("members") or {}}
    return set()


def _names(directory: str) -> list[str]:
    """Return the names of the nodes that have settings in a directory, in the order of their numbers.

    Empty if n1 never had a settings file: it is written last, so the creation of the cluster was interrupted.
    """
    first = node_file(directory, "n1")
    if not os.path.exists(first) and not os.path.exists(first + REMOVED):
        return []
    names = [name.removesuffix(".toml") for name in os.listdir(directory) if name.endswith(".toml")]
    return sorted(filter(_NAME.fullmatch, names), key=lambda name: int(name[1:]))


def settings_files(directory: str) -> list[str]:
    """Return the settings files of the nodes in a local cluster's directory, in the order of their numbers."""
    return [node_file(directory, name) for name in _names(directory)]


def _check_actors(settings: Mapping[str, str], directory: str) -> None:
    """Import the classes of ``actors.NAME`` before the settings files are written, so that no file has a wrong name.

    Raises:
      ConfigError: as a node would raise it. A value that is not "module:Class" is left to the check of all settings.
    """
    entries = {name: target for name, target in settings.items() if name.startswith("actors.") and ":" in target}
    if entries:
        from viewstamp.embed.actor_classes import (
            import_actors,  # Imported here, because it is slow to import and rarely needed.
        )

        import_actors({name.removeprefix("actors."): target for name, target in entries.items()}, directory)
