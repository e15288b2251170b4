"""Restores a backup as a new cluster in a directory of this machine.

| step | the process dies in it: the directory holds |
| --- | --- |
| 1. write ``.restore/plan.json``: the backup, the cut, the number of nodes | nothing that a node starts with |
| 2. write the settings of the new cluster, and its certificates, under ``.restore/settings/`` | the same |
| 3. write the files of a stopped member under ``.restore/source/`` | the same |
| 4. fork these into n1/, n2/ ... (``viewstamp.fork``) | the same, and marks with which no node starts |
| 5. move certificates and settings beside them, the first node's settings last | the data of the new cluster, and \
no settings of its first node |
| 6. remove ``.restore``, plan.json last | the new cluster |

Without the settings of its first node there is no cluster in the directory. The same command again goes on in the step
that was interrupted; another plan is refused while the first one is unfinished.

All nodes are made here, also those for other machines, to which their files are copied afterwards. A restore on each
machine would make a cluster on each, or, with a given id, could make two logs of one cluster, because "the newest
backup" is another one a minute later (docs/design/0017).
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.restore import BackupChoice, choose, write_directories
from viewstamp.backup.store import BackupStore
from viewstamp.backup.verify import BackupReader
from viewstamp.config import (
    NodeSettings,
    create_cluster,
    create_machine_files,
    load_settings,
    make_certificates,
    node_file,
)
from viewstamp.config.certificates import check_library
from viewstamp.errors import ConfigError, StorageFullError
from viewstamp.fork import Basis, NewMember, finish_fork, fork, judge_source
from viewstamp.host.disk import RealDisk
from viewstamp.host.private import make_private_directory, open_private
from viewstamp.ids import NodeId
from viewstamp.local.forking import remove_empty_directories
from viewstamp.node.fork_mark import read_fork_mark
from viewstamp.wal.control_file import read_control_state

__all__ = ["RestorePlan", "Restored", "restore_cluster"]

_WORK: Final = ".restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The arguments of a restore; see :func:`viewstamp.backup.restore.choose`.

    Attributes:
      target: where the backups are.
      backup, until, until_time: the choice of the backup and of its last record.
      nodes: the number of nodes on loopback addresses of this machine, called n1, n2 and so on.
      members: instead of ``nodes``, the (name, ``host:port``) of each node, as for ``config new --member``.
        ``data_dir``, ``tls`` and ``insecure_network`` are for these: see :func:`viewstamp.config.create_machine_files`.
      settings: (``section.key``, text) pairs for every settings file.
    """

    target: str
    backup: str | None = None
    until: int | None = None
    until_time: int | None = None
    nodes: int = 3
    members: tuple[tuple[str, str], ...] = ()
    data_dir: str = ""
    tls: bool = False
    insecure_network: bool = False
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [name for name, _ in self.members] or [f"n{number}" for number in range(1, self.nodes + 1)]

    def as_json(self) -> dict[str, object]:
        """Return the fields as JSON reads them back."""
        fields: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The new cluster: ``end`` is the index behind its last record, ``old`` the id of the backup's cluster.

    ``addresses`` has the address of each of ``nodes``. If the settings of the new nodes name no archive, ``archived``
    has by topic the last position that is in files of the archive: these records may be nowhere else.
    """

    directory: str
    backup: str
    old: str
    cluster: str
    nodes: list[str]
    addresses: dict[str, str]
    end: int
    archived: dict[str, int]


def restore_cluster(
    store: BackupStore,
    directory: str,
    plan: RestorePlan,
    *,
    on_step: Callable[[str, int], None] = lambda text, size: None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Restored:
    """Make a new cluster out of a backup; blocking, durable on return. The same call again goes on after a crash.

    Args:
      store: with the backups.
      directory: of the new cluster: empty, or missing, or with the same restore that was interrupted.
      plan: the backup and the new cluster.
      on_step: called with a text and a number of bytes when a long step begins.
      on_bytes: called with the bytes that were done since the last call.

    Raises:
      ConfigError: the directory holds something else, or there is no such backup.
      CorruptionError: the backup is damaged; no cluster was made.
      RequestError: no backup reaches to the cut, or none begins before it.
      DirectoryInUseError: another restore works in this directory.
      StorageError: the disk or the target failed; StorageFullError: there is too little space.
    """
    return _Restore(store, os.path.abspath(directory), plan, on_step, on_bytes).run()


class _Restore:
    def __init__(
        self,
        store: BackupStore,
        directory: str,
        plan: RestorePlan,
        on_step: Callable[[str, int], None],
        on_bytes: Callable[[int], None],
    ) -> None:
        self._store = store
        self._directory = directory
        self._plan = plan
        self._names = plan.names
        self._on_step = on_step
        self._on_bytes = on_bytes
        self._disk = RealDisk()
        self._entropy = random.SystemRandom()
        self._work = f"{directory}/{_WORK}"
        self._settings = f"{self._work}/settings"
        self._source = f"{self._work}/source"

    def run(self) -> Restored:
        self._check_directory()
        is_made = not os.path.isdir(self._directory)
        make_private_directory(self._directory)
        make_private_directory(self._work)
        lock = self._disk.lock(self._work)
        try:
            choice = self._begin()
            if not self._is_forked():
                self._fork(choice)
            found = self._finish()
            shutil.rmtree(self._settings, ignore_errors=True)
            shutil.rmtree(self._source, ignore_errors=True)
            os.remove(f"{self._work}/plan.json")
        except BaseException:
            self._take_back(is_made=is_made)
            raise
        finally:
            lock.release()
        shutil.rmtree(self._work)
        settings = {name: self._load(name) for name in self._names}
        has_archive = all(each.archive.directory or each.archive.url for each in settings.values())
        return Restored(
            directory=self._directory,
            backup=choice.manifest.id,
            old=choice.manifest.cluster,
            cluster=found[0],
            nodes=self._names,
            addresses={name: each.node.advertise for name, each in settings.items()},
            end=found[1],
            archived={} if has_archive else dict(choice.manifest.archived),
        )

    def _check_directory(self) -> None:
        if not os.path.isdir(self._directory):
            return
        if os.listdir(self._directory) and not os.path.isdir(self._work):
            raise ConfigError(
                f"{self._directory} is not empty; nothing was changed",
                remedy="name a new directory for the restored cluster",
            )

    def _begin(self) -> BackupChoice:
        """Choose the backup and write the settings; or go on with those of an interrupted restore with the same plan.

        The plan is stored last, so arguments that are refused can be corrected.
        """
        path = f"{self._work}/plan.json"
        plan = self._plan.as_json()
        try:
            with open(path, encoding="utf-8") as stream:
                stored = json.load(stream)
        except FileNotFoundError:
            stored = {}
        if not stored and os.path.exists(node_file(self._directory, self._names[0])):
            raise ConfigError(
                f"{self._directory} has the cluster of another restore, which was finished; nothing was changed",
                remedy="name a new directory for this restore",
            )
        if stored and stored.keys() != {*plan, "chosen"}:
            raise ConfigError(
                f"another release began a restore in {self._directory}, and did not finish it; nothing was changed",
                remedy=f"remove {self._directory} and restore again",
            )
        chosen = stored.pop("chosen", self._plan.backup)
        if stored and stored != plan:
            raise ConfigError(
                f"another restore was interrupted in {self._directory}: {_shown(stored)}; nothing was changed",
                remedy=f"repeat that one, or remove {self._directory} and begin anew",
            )
        choice = choose(
            BackupCatalogue.load(self._store), chosen, until=self._plan.until, until_time=self._plan.until_time
        )
        if not stored:
            self._check_room(choice.size * (1 + len(self._names)))
            shutil.rmtree(self._settings, ignore_errors=True)
            self._write_settings()
            _write(path, json.dumps({**plan, "chosen": choice.manifest.id}))
        return choice

    def _write_settings(self) -> None:
        plan = self._plan
        if not plan.members:
            create_cluster(self._settings, plan.nodes, dict(plan.settings))
            return
        if plan.tls:
            check_library()
            if "tls" in self._names:
                raise ConfigError(
                    "a member cannot be called tls, because that is the directory of the certificates",
                    remedy="choose another name; nothing was changed",
                )
        create_machine_files(
            self._settings,
            dict(plan.members),
            data_dir=plan.data_dir,
            tls=plan.tls,
            insecure_network=plan.insecure_network,
            settings=dict(plan.settings),
        )
        if plan.tls:
            make_certificates(self._settings)

    def _take_back(self, *, is_made: bool) -> None:
        """Remove the working directory of a restore that failed before its plan was stored."""
        if not os.path.exists(f"{self._work}/plan.json"):
            shutil.rmtree(self._work, ignore_errors=True)
            if is_made:
                with suppress(OSError):
                    os.rmdir(self._directory)

    def _load(self, name: str) -> NodeSettings:
        """Return the settings of a node, moved already or not."""
        file = node_file(self._settings, name)
        file = file if os.path.exists(file) else node_file(self._directory, name)
        return load_settings(file, environment={}).settings

    def _is_forked(self) -> bool:
        """Return whether the data of all nodes is complete, after finishing a fork that was decided."""
        places = [f"{self._directory}/{name}" for name in self._names]
        finish_fork(self._disk, [place for place in places if os.path.isdir(place)])
        cluster = self._load(self._names[0]).cluster.id
        for place in places:
            if not os.path.isdir(place) or read_fork_mark(self._disk, place) is not None:
                return False
            state = read_control_state(self._disk, place)
            if state is None or state.cluster_id != cluster:
                return False
        return True

    def _fork(self, choice: BackupChoice) -> None:
        self._on_step("reading the backup", choice.size)
        reader = BackupReader(self._store, on_bytes=self._on_bytes)
        write_directories(self._disk, self._source, reader, choice, self._entropy)
        self._on_step("checking", choice.size)
        source = judge_source(
            self._disk,
            [self._source],
            basis=Basis.COMMITTED,
            until=self._plan.until,
            until_time=self._plan.until_time,
            with_groups=True,
            on_bytes=self._on_bytes,
        )
        groups = [log.group for log in choice.logs]
        assert list(source.logs) == groups, f"the groups {list(source.logs)} of a backup of {groups}"
        settings = {name: self._load(name) for name in self._names}
        self._on_step("writing the new cluster", sum(log.bytes for log in source.logs.values()) * len(settings))
        fork(
            self._disk,
            source,
            cluster=settings[self._names[0]].cluster.id,
            members=[
                NewMember(node=NodeId(name), address=each.node.advertise, directory=f"{self._directory}/{name}")
                for name, each in settings.items()
            ],
            entropy=self._entropy,
            segment_bytes=min(each.wal.segment_bytes for each in settings.values()),
            origin=f"restored from backup {choice.manifest.id}",
            on_bytes=self._on_bytes,
        )

    def _check_room(self, size: int) -> None:
        free = self._disk.free_bytes(self._directory)
        if free < size:
            raise StorageFullError(
                f"{self._directory} has {free:,} bytes free, and the restore needs about {size:,}",
                remedy="free space there, or name another directory, or fewer nodes; nothing was written",
            )

    def _finish(self) -> tuple[str, int]:
        """Move certificates and settings to their place, those of the first node last.

        Returns:
          The id of the new cluster, and its end.
        """
        if os.path.isdir(f"{self._settings}/tls"):
            os.rename(f"{self._settings}/tls", f"{self._directory}/tls")
            self._disk.sync_directory(self._directory)
        for name in reversed(self._names):
            if os.path.exists(node_file(self._settings, name)):
                os.rename(node_file(self._settings, name), node_file(self._directory, name))
                self._disk.sync_directory(self._directory)
        remove_empty_directories(f"{self._directory}/{name}" for name in self._names)
        state = read_control_state(self._disk, f"{self._directory}/{self._names[0]}")
        assert state is not None, "the fork has written it"
        return state.cluster_id, state.commit_hint


def _shown(plan: Mapping[str, object]) -> str:
    """Return the arguments of a restore that were given, as text."""
    return ", ".join(f"{name} = {value}" for name, value in plan.items() if value or name == "target")


def _write(path: str, text: str) -> None:
    with open(path + ".new", "w", encoding="utf-8", opener=open_private) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + ".new", path)
