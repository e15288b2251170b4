"""Restores a backup as a new cluster in a directory of this machine.

| step | the process dies in it: the directory holds |
| --- | --- |
| 1. write ``.restore/plan.json``: the backup, the cut, the number of nodes | nothing that a node starts with |
| 2. write the settings of the new cluster under ``.restore/settings/`` | the same |
| 3. write the files of a stopped member under ``.restore/source/`` | the same |
| 4. fork these into n1/, n2/ ... (``viewstamp.fork``) | the same, and marks with which no node starts |
| 5. move the settings beside them, n1.toml last | the data of the new cluster, and no settings of n1 |
| 6. remove ``.restore``, plan.json last | the new cluster |

Without n1.toml there is no cluster in the directory. The same command again goes on in the step that was interrupted;
another plan is refused while the first one is unfinished.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from viewstamp.backup.catalogue import BackupCatalogue
from viewstamp.backup.restore import BackupChoice, choose, write_directory
from viewstamp.backup.store import BackupStore
from viewstamp.backup.verify import BackupReader
from viewstamp.config import create_cluster, load_settings, node_file
from viewstamp.errors import ConfigError, StorageFullError
from viewstamp.fork import Basis, NewMember, finish_fork, fork, judge_source
from viewstamp.host.disk import RealDisk
from viewstamp.host.private import make_private_directory, open_private
from viewstamp.ids import NodeId
from viewstamp.node.fork_mark import read_fork_mark
from viewstamp.wal.control_file import read_control_state

__all__ = ["RestorePlan", "Restored", "restore_cluster"]

_WORK: Final = ".restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The arguments of a restore; see :func:`viewstamp.backup.restore.choose`. ``target`` is where the backups are."""

    target: str
    backup: str | None = None
    until: int | None = None
    until_time: int | None = None
    nodes: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The new cluster: ``end`` is the index behind its last record, ``old`` the id of the backup's cluster."""

    directory: str
    backup: str
    old: str
    cluster: str
    nodes: list[str]
    end: int


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
        self._on_step = on_step
        self._on_bytes = on_bytes
        self._disk = RealDisk()
        self._entropy = random.SystemRandom()
        self._work = f"{directory}/{_WORK}"
        self._settings = f"{self._work}/settings"
        self._source = f"{self._work}/source"

    def run(self) -> Restored:
        self._check_directory()
        make_private_directory(self._directory)
        make_private_directory(self._work)
        lock = self._disk.lock(self._work)
        try:
            choice = self._choose()
            names = self._write_settings()
            if not self._is_forked(names):
                self._fork(names, choice)
            found = self._finish(names)
            shutil.rmtree(self._settings, ignore_errors=True)
            shutil.rmtree(self._source, ignore_errors=True)
            os.remove(f"{self._work}/plan.json")
        finally:
            lock.release()
        shutil.rmtree(self._work)
        return Restored(
            directory=self._directory,
            backup=choice.manifest.id,
            old=choice.manifest.cluster,
            cluster=found[0],
            nodes=names,
            end=found[1],
        )

    def _check_directory(self) -> None:
        if not os.path.isdir(self._directory):
            return
        if os.listdir(self._directory) and not os.path.isdir(self._work):
            raise ConfigError(
                f"{self._directory} is not empty; nothing was changed",
                remedy="name a new directory for the restored cluster",
            )

    def _choose(self) -> BackupChoice:
        """Choose the backup, or the one that an interrupted restore with the same plan has chosen."""
        path = f"{self._work}/plan.json"
        plan = asdict(self._plan)
        try:
            with open(path, encoding="utf-8") as stream:
                stored = json.load(stream)
        except FileNotFoundError:
            stored = {}
        if not stored and os.path.exists(node_file(self._directory, "n1")):
            raise ConfigError(
                f"{self._directory} has the cluster of another restore, which was finished; nothing was changed",
                remedy=f"remove {self._work}, and name a new directory for this restore",
            )
        chosen = stored.pop("chosen", self._plan.backup)
        if stored and stored != plan:
            raise ConfigError(
                f"another restore was interrupted in {self._directory}: {stored}; nothing was changed",
                remedy=f"repeat that one, or remove {self._directory} and begin anew",
            )
        choice = choose(
            BackupCatalogue.load(self._store), chosen, until=self._plan.until, until_time=self._plan.until_time
        )
        if not stored:
            _write(path, json.dumps({**plan, "chosen": choice.manifest.id}))
        return choice

    def _write_settings(self) -> list[str]:
        """Write the settings of the new cluster, unless an interrupted restore did; return the names of the nodes."""
        names = [f"n{number}" for number in range(1, self._plan.nodes + 1)]
        if not any(os.path.exists(node_file(each, names[0])) for each in (self._settings, self._directory)):
            shutil.rmtree(self._settings, ignore_errors=True)
            create_cluster(self._settings, self._plan.nodes)
        return names

    def _file(self, name: str) -> str:
        """Return the settings file of a node, moved already or not."""
        file = node_file(self._settings, name)
        return file if os.path.exists(file) else node_file(self._directory, name)

    def _is_forked(self, names: list[str]) -> bool:
        """Return whether the data of all nodes is complete, after finishing a fork that was decided."""
        places = [f"{self._directory}/{name}" for name in names]
        finish_fork(self._disk, [place for place in places if os.path.isdir(place)])
        cluster = load_settings(self._file(names[0]), environment={}).settings.cluster.id
        for place in places:
            if not os.path.isdir(place) or read_fork_mark(self._disk, place) is not None:
                return False
            state = read_control_state(self._disk, place)
            if state is None or state.cluster_id != cluster:
                return False
        return True

    def _fork(self, names: list[str], choice: BackupChoice) -> None:
        self._check_room(choice.size * (1 + len(names)))
        self._on_step("reading the backup", choice.size)
        reader = BackupReader(self._store, on_bytes=self._on_bytes)
        write_directory(self._disk, self._source, reader, choice, self._entropy)
        self._on_step("checking", choice.size)
        source = judge_source(
            self._disk,
            [self._source],
            basis=Basis.COMMITTED,
            until=self._plan.until,
            until_time=self._plan.until_time,
            on_bytes=self._on_bytes,
        )
        settings = {name: load_settings(self._file(name), environment={}).settings for name in names}
        self._on_step("writing the new cluster", source.bytes * len(names))
        fork(
            self._disk,
            source,
            cluster=settings[names[0]].cluster.id,
            members=[
                NewMember(node=NodeId(name), address=each.node.listen, directory=f"{self._directory}/{name}")
                for name, each in settings.items()
            ],
            entropy=self._entropy,
            on_bytes=self._on_bytes,
        )

    def _check_room(self, size: int) -> None:
        free = self._disk.free_bytes(self._directory)
        if free < size:
            raise StorageFullError(
                f"{self._directory} has {free:,} bytes free, and the restore needs about {size:,}",
                remedy="free space there, or name another directory, or fewer --nodes; nothing was written",
            )

    def _finish(self, names: list[str]) -> tuple[str, int]:
        """Move the settings to their place, n1.toml last; return the id and the end of the new cluster."""
        for name in reversed(names):
            if os.path.exists(node_file(self._settings, name)):
                os.rename(node_file(self._settings, name), node_file(self._directory, name))
                self._disk.sync_directory(self._directory)
        state = read_control_state(self._disk, f"{self._directory}/{names[0]}")
        assert state is not None, "the fork has written it"
        return state.cluster_id, state.commit_hint


def _write(path: str, text: str) -> None:
    with open(path + ".new", "w", encoding="utf-8", opener=open_private) as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + ".new", path)
