"""Makes a new cluster out of the files of stopped nodes on this machine, named by their settings files.

The order over settings and data, and the effect if the process dies:

| step | the process dies in it | a repetition |
| --- | --- | --- |
| 1. judge the files; ask the old members | nothing has changed | begins again |
| 2. settings of nodes that do not become members are set aside; id and members of the new cluster go into the \
others | some files have the new id. No node starts, because its settings contradict its data | \
takes the new id from the files that have it |
| 3. the fork (``viewstamp.fork``) | see there; no node starts | finishes it |

If step 3 fails with an error, the settings are put back.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from viewstamp.config import NodeSettings, load_settings, with_cluster, write_file
from viewstamp.errors import ConfigError, UnavailableError
from viewstamp.ids import NodeId, name_of
from viewstamp.local.cluster import REMOVED, settings_files
from viewstamp.local.target import ClusterTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from viewstamp.consensus.membership import Membership
    from viewstamp.fork import ForkResult, ForkSource, NewMember
    from viewstamp.host.tls import TlsFiles

__all__ = [
    "Forking",
    "NodeFiles",
    "members_target",
    "members_that_answer",
    "refuse_while_any_answers",
    "refuse_while_majority_answers",
    "remove_empty_directories",
]


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """A node's settings and the file they come from."""

    settings: NodeSettings
    file: str

    @property
    def data_dir(self) -> str:
        """The data directory."""
        return self.settings.node.data_dir

    @property
    def has_data(self) -> bool:
        """Whether the directory holds a part of a cluster."""
        from viewstamp.wal.control_file import CONTROL_NAMES

        return any(os.path.exists(os.path.join(self.data_dir, name)) for name in (*CONTROL_NAMES, "wal"))


class Forking:
    """One fork: nodes with given settings become the members of a new cluster."""

    def __init__(
        self, nodes: Sequence[NodeFiles], *, members: Sequence[NodeFiles] | None = None, cluster: str = ""
    ) -> None:
        """Begin.

        Args:
          nodes: all nodes with given settings, at least one.
          members: those of them that become members of the new cluster; None = all. The settings of the others are
            set aside, because nodes with empty directories could elect a leader among themselves.
          cluster: its id; "" = the one in the settings, if it differs from that of the data, else a random one.
        """
        self.nodes = nodes
        self.members = nodes if members is None else members
        self._wanted = cluster

    @classmethod
    def of(
        cls,
        directory: str | os.PathLike[str],
        configs: Sequence[str | os.PathLike[str]],
        *,
        cluster: str = "",
        survivors_only: bool = False,
    ) -> Forking:
        """Read the given settings files; without any, those of a local cluster's directory.

        With ``survivors_only`` a node with an empty data directory does not become a member.

        Raises:
          ConfigError: there are none, or one cannot be read.
        """
        files = [os.path.abspath(file) for file in configs] or settings_files(os.path.abspath(directory))
        if not files:
            raise ConfigError(
                f"there is no cluster in {os.path.abspath(directory)}",
                remedy="name the directory of a local cluster by --dir, or each node's settings file by --config",
            )
        nodes = [NodeFiles(load_settings(file, environment={}).settings, file) for file in files]
        members = [node for node in nodes if node.has_data or not survivors_only]
        return cls(nodes, members=members, cluster=cluster)

    @property
    def left_out(self) -> list[NodeFiles]:
        """The nodes that do not become members."""
        return [node for node in self.nodes if node not in self.members]

    @property
    def tls(self) -> TlsFiles | None:
        """The certificates in the settings; None = there are none."""
        return next((files for node in self.nodes if (files := node.settings.tls.files) is not None), None)

    @property
    def data_dirs(self) -> list[str]:
        """The data directories of the new members."""
        return [node.data_dir for node in self.members]

    def finish(self) -> ForkResult | None:
        """Finish a fork that was interrupted after it was decided; None = there is none. Raises as ``finish_fork``."""
        from viewstamp.fork import finish_fork
        from viewstamp.host.disk import RealDisk

        return finish_fork(RealDisk(), self.data_dirs)

    def new_id(self, old: str) -> str:
        """Return the id of the new cluster. Raises ConfigError if the settings name several."""
        if self._wanted:
            return self._wanted
        named = sorted({str(node.settings.cluster.id) for node in self.nodes} - {old})
        if len(named) > 1:
            raise ConfigError(
                f"the settings name the clusters {', '.join(named)}",
                remedy="write one id into [cluster] id of all files, or name it by --id",
            )
        return named[0] if named else secrets.token_hex(16)

    def judge(self, sources: Sequence[str], *, survivors: bool = False) -> ForkSource:
        """Choose the log among the given data directories, by default those of the nodes that have data; blocking.

        With ``survivors`` the best log of the files is taken, with or without a majority. Raises as ``judge_source``.
        """
        from viewstamp.fork import Basis, judge_source
        from viewstamp.host.disk import RealDisk

        paths = [os.path.abspath(each) for each in sources] or [n.data_dir for n in self.nodes if n.has_data]
        if not paths:
            raise ConfigError(
                "none of the nodes has data", remedy="name the data directories of the old members by --from"
            )
        basis = Basis.SURVIVORS if survivors else Basis.ELECTED
        return judge_source(RealDisk(), paths, basis=basis, with_groups=True)

    @property
    def new_members(self) -> list[NewMember]:
        """The voters of the new cluster."""
        from viewstamp.fork import NewMember

        return [
            NewMember(
                node=NodeId(str(node.settings.node.id)), address=node.settings.node.advertise, directory=node.data_dir
            )
            for node in self.members
        ]

    def run(
        self,
        source: ForkSource,
        on_bytes: Callable[[int], None] = lambda _: None,
        check: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> ForkResult:
        """Write the settings and the files; blocking. ``check`` is that of ``viewstamp.fork.fork``.

        Raises:
          ConfigError: settings cannot be changed by a program; nothing was changed.
          and the errors of ``viewstamp.fork.fork``; then the settings are as before.
        """
        from viewstamp.fork import fork
        from viewstamp.host.disk import RealDisk

        cluster, members = self.new_id(source.cluster), self.new_members
        addresses = {str(member.node): member.address for member in members}
        after = {node.file: with_cluster(node.file, cluster, addresses) for node in self.members}
        before = {file: Path(file).read_text(encoding="utf-8") for file in after}
        try:
            for node in self.left_out:
                os.rename(node.file, node.file + REMOVED)
            for file, text in after.items():
                write_file(file, text)
            return fork(
                RealDisk(),
                source,
                cluster=cluster,
                members=members,
                entropy=random.SystemRandom(),
                segment_bytes=min(node.settings.wal.segment_bytes for node in self.members),
                on_bytes=on_bytes,
                check=check,
            )
        except BaseException:
            if not self._is_decided():
                for file, text in before.items():
                    write_file(file, text)
                for node in self.left_out:
                    with suppress(FileNotFoundError):
                        os.rename(node.file + REMOVED, node.file)
            raise
        finally:
            remove_empty_directories(self.data_dirs)

    def _is_decided(self) -> bool:
        from viewstamp.host.disk import RealDisk
        from viewstamp.node.fork_mark import read_fork_mark

        marks = [read_fork_mark(RealDisk(), directory) for directory in self.data_dirs]
        return any(mark is not None and mark.is_decided for mark in marks)


def remove_empty_directories(data_dirs: Iterable[str]) -> None:
    """Remove the directories that a fork leaves behind in the data directories of the new members.

    Beside those of the new files these are the ones of groups that the member does not host any more: their old files
    were moved aside, and `viewstamp doctor` would name each as a directory that is not used.
    """
    from viewstamp.node.data_dir import GROUPS_NAME
    from viewstamp.node.fork_mark import STAGING_NAME

    for directory in data_dirs:
        staging = os.path.join(directory, STAGING_NAME)
        for groups in (os.path.join(staging, GROUPS_NAME), os.path.join(directory, GROUPS_NAME)):
            with suppress(OSError):
                for group in os.listdir(groups):
                    _remove_empty(os.path.join(groups, group))
                os.rmdir(groups)
        _remove_empty(staging)


def _remove_empty(directory: str) -> None:
    for name in ("snapshots", "wal", ""):
        with suppress(OSError):  # It is not empty, or does not exist.
            os.rmdir(os.path.join(directory, name))


def members_target(membership: Membership, cluster: str, tls: TlsFiles | None) -> ClusterTarget:
    """Return the members of a record as a target: each has to prove that it runs on the disk that the record names."""
    from viewstamp.client.routing import ExpectedNode

    expected = {
        address: ExpectedNode(node=name_of(member), incarnation=membership.incarnations.get(member, ""))
        for member, address in membership.addresses.items()
    }
    return ClusterTarget(list(expected), cluster, expected=expected, tls=tls)


def members_that_answer(
    membership: Membership, cluster: str, tls: TlsFiles | None, *, seconds: float
) -> Mapping[str, str]:
    """Return the members that answer at their recorded addresses and prove the recorded disk, with the addresses."""
    target = members_target(membership, cluster, tls)

    async def ask() -> dict[str, str]:
        async with target.connect(seconds) as client:
            statuses = await client.status(timeout=seconds)
        return {
            str(status.get("member_id") or status["id"]): str(status.get("address"))
            for status in statuses
            if status["reachable"]
        }

    from viewstamp.terminal.loop import run_async

    return run_async(ask())


def refuse_while_majority_answers(source: ForkSource, tls: TlsFiles | None, *, seconds: float) -> None:
    """Return if no majority of the old cluster's members answers at the recorded addresses.

    Raises:
      UnavailableError: a majority does, so the cluster works.
    """
    from viewstamp.consensus import standing

    if source.membership is None:
        return
    answering = members_that_answer(source.membership, source.cluster, tls, seconds=seconds)
    if standing.is_majority(source.membership, [NodeId(member) for member in answering]):
        raise UnavailableError(
            f"a majority of cluster {source.cluster} works: {_named(answering)} answer; nothing was changed",
            remedy="if these files are a copy, and the original shall go on without them: --original-goes-on; if they"
            " are the original's own, stop its nodes first",
        )


def refuse_while_any_answers(source: ForkSource, tls: TlsFiles | None, *, seconds: float) -> None:
    """Return if no member of the old cluster answers, because the files of one that does are not lost.

    Raises:
      UnavailableError: one does.
    """
    if source.membership is None:
        return
    answering = members_that_answer(source.membership, source.cluster, tls, seconds=seconds)
    if answering:
        raise UnavailableError(
            f"members of cluster {source.cluster} are not lost: {_named(answering)} answer; nothing was changed",
            remedy="stop them, copy their data directories here, and name those by --from too",
        )


def _named(answering: Mapping[str, str]) -> str:
    return ", ".join(f"{member} at {address}" for member, address in answering.items())
