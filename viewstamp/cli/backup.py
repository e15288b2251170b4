"""``viewstamp backup``: takes, verifies, lists, restores and prunes backups."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.config import MemberOption, NewSetOption, members_of, overrides_of
from viewstamp.cli.group import CommandGroup
from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, size
from viewstamp.errors import ConfigError, ViewstampError
from viewstamp.ids import RELEASE
from viewstamp.local.find import find_cluster
from viewstamp.terminal.flags import program
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say
from viewstamp.terminal.progress import WorkProgress

if TYPE_CHECKING:
    from viewstamp.backup.manifest import Manifest
    from viewstamp.backup.source import BackupSource
    from viewstamp.backup.store import BackupStore
    from viewstamp.backup.verify import BackupVerification
    from viewstamp.local.drill import DrillResult

__all__ = ["app"]

app = typer.Typer(cls=CommandGroup, help="Back up a cluster, and restore it as a new one.", no_args_is_help=True)

_RATE: Final = "32MiB"
TargetArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="A directory, or an fsspec URL such as s3://bucket/path.")
]
BackupOption = Annotated[
    str | None, typer.Option("--backup", metavar="ID", help="This backup, as `list` shows it. [default: the newest]")
]
KeepOption = Annotated[
    int | None, typer.Option("--keep", metavar="N", min=1, help="Afterwards remove all backups but the newest N.")
]


@app.command()
def create(
    target: TargetArgument,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="DIR", help="Take it from the files of a stopped node. Repeat it for each node."
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Read from this member. [default: a follower]")
    ] = None,
    rate: Annotated[
        int, typer.Option("--rate", metavar="SIZE", parser=size(minimum=1), help="Read at most this much per second.")
    ] = _RATE,  # type: ignore[assignment]  # the parser turns it into a number
    stale: Annotated[
        bool,
        typer.Option(
            "--stale", help="Without a majority: take the log of one member; the newest records may be missing."
        ),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Use nothing of earlier backups.")] = False,
    keep: KeepOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Back up the whole cluster while it runs. Only records since the last backup in TARGET are copied.

    The backup holds all topics, sinks and actors, up to an index that the command prints. If it is interrupted, the
    earlier backups are unchanged, and the next one goes on.
    """
    from viewstamp.backup.options import BackupOptions

    options = BackupOptions(bytes_per_second=max(1, rate), is_full=full)
    store = _open(target)
    with WorkProgress(output) as progress, store.held():
        manifest = _create(store, options, progress, files, node, directory, cluster, stale=stale)
        pruned = None
        if keep is not None:
            from viewstamp.backup.prune import prune as prune_store

            pruned = prune_store(store, keep)
    if output is Output.JSON:
        fields = {**_fields(manifest), "archived": manifest.archived}
        print_json({**fields, "pruned": asdict(pruned) if pruned is not None else None})
        return
    print(f"backup {manifest.id} of cluster {manifest.cluster}, from {manifest.node}")
    rows: list[tuple[str, object]] = [
        ("records up to index", manifest.end - 1),
        ("log time", _time(manifest.log_time)),
        ("bytes", manifest.size),
        ("of these sent now", manifest.sent_bytes),
    ]
    rows += [(f"group {log.group} up to index", log.end - 1) for log in manifest.groups]
    if pruned is not None:
        rows += [("backups removed", len(pruned.backups)), ("bytes removed", pruned.bytes)]
    print_table(["", "value"], rows)
    _say_archived(manifest)


def _say_archived(manifest: Manifest) -> None:
    """Say which records are in files of the archive, which a backup does not contain."""
    from viewstamp.backup.manifest import archived_of

    found = [(name, last) for name, last in archived_of(manifest.topics).items()]
    for log in manifest.groups:
        streams = [(*name.rpartition(".")[::2], last) for name, last in log.archived.items()]
        found += [(f"{topic}, stream {number}", last) for topic, number, last in streams]
    if found:
        say("Keep the archive too: a backup lacks its files, and a restored cluster reads these records there")
    for name, last in sorted(found):
        say(f"  {name}: up to position {last:,}")


def _create(
    store: BackupStore,
    options: object,
    progress: WorkProgress,
    files: list[Path] | None,
    node: str | None,
    directory: Path | None,
    cluster: str | None,
    *,
    stale: bool,
) -> Manifest:
    from viewstamp.backup.create import BackupTaker
    from viewstamp.backup.options import BackupOptions
    from viewstamp.backup.source import ClusterSource
    from viewstamp.host.clock import RealClock
    from viewstamp.terminal.loop import run_async

    assert isinstance(options, BackupOptions), "as the caller made it"

    async def take(source: BackupSource) -> Manifest:
        progress.begin("copying", 0)
        taker = BackupTaker(
            store,
            source,
            clock=RealClock(),
            release=RELEASE,
            options=options,
            on_bytes=progress.add,
        )
        return await taker.take()

    if files:
        if directory is not None or cluster is not None or node is not None:
            raise ConfigError("--from and --dir, --cluster or --node are both given", remedy="give one of them")
        from viewstamp.backup.files_source import FilesSource
        from viewstamp.host.disk import RealDisk

        source = FilesSource.open(RealDisk(), [os.path.abspath(each) for each in files])
        if not source.is_majority:
            progress.note(
                "WARNING: these files are no majority of the members: the backup has only the records that they are"
                " known to have committed, and later acknowledged records may be missing. It does not say which records"
                " are in the archive, whose files it does not contain"
            )
        if source.left_out:
            progress.note(
                f"WARNING: the cluster also has the groups {', '.join(str(each.id) for each in source.left_out)}, whose"
                " directories are not there: the backup does not contain the records of their streams"
            )
        if source.is_majority and source.has_lost_power:
            progress.note("WARNING: a member lost power in interval mode, so acknowledged records may be missing")
        return run_async(take(source))
    found = find_cluster(directory, cluster)

    async def from_cluster() -> Manifest:
        async with found.connect() as client:
            return await take(ClusterSource(client, node=node, stale=stale))

    return run_async(from_cluster())


@app.command("list")
def list_backups(target: TargetArgument, output: OutputOption = Output.TABLE) -> None:
    """List the backups in TARGET, the oldest first, and name manifests that cannot be read."""
    from viewstamp.backup.catalogue import BackupCatalogue

    catalogue = BackupCatalogue.load(_open(target))
    problems = [{"manifest": name, "error": error.message} for name, error in catalogue.problems.items()]
    if output is Output.JSON:
        print_json({"backups": [_fields(each) for each in catalogue.manifests], "problems": problems})
        return
    # The id has the time of the backup and the last index, so that the table fits into 80 columns.
    rows = [
        (each.id, _time(each.log_time), f"{each.size / 1e6:,.1f}", f"{each.sent_bytes / 1e6:,.1f}")
        for each in catalogue.manifests
    ]
    empty = f"{target} has no backup; take one with `viewstamp backup create {target}`"
    print_table(["backup", "last log time", "MB", "MB sent"], rows, empty=empty)
    for problem in problems:
        say(f"not readable: {problem['error']}")


@app.command()
def verify(
    target: TargetArgument,
    backup: BackupOption = None,
    all_backups: Annotated[bool, typer.Option("--all", help="Verify all backups in the target.")] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Then restore it to a temporary directory, start it, and compare it.")
    ] = False,
    actor: Annotated[
        list[str] | None,
        typer.Option("--actor", metavar="NAME=MODULE:CLASS", help="The class of an actor, for --start."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read a backup and check every digest and checksum, and that the pieces join.

    Exits with 7 if anything is missing or damaged; all damage is listed. With --start it also exits with 1 if the
    restored cluster differs from the source: in the checksum of the state, in a topic, a sink or an actor.
    """
    from viewstamp.backup.catalogue import BackupCatalogue
    from viewstamp.backup.verify import BackupReader

    store = _open(target)
    catalogue = BackupCatalogue.load(store)
    chosen = catalogue.manifests if all_backups else [catalogue.find(backup)]
    errors: list[ViewstampError] = list(catalogue.problems.values()) if all_backups else []
    found: list[BackupVerification] = []
    with WorkProgress(output) as progress:
        progress.begin("verifying", sum({each.name: each.size for one in chosen for each in one.objects}.values()))
        reader = BackupReader(store, on_bytes=progress.add)
        for manifest in chosen:
            found.append(reader.verify(manifest))
            errors += found[-1].errors
    rows = [
        (each.backup, each.objects, each.bytes, each.records, "damaged" if each.errors else "whole") for each in found
    ]
    drilled = _drill(store, chosen[-1], actor or [], output) if start and chosen and not errors else None
    if output is Output.JSON:
        listed = [
            {**asdict(each), "errors": [error.message for error in each.errors], "archived": manifest.archived}
            for each, manifest in zip(found, chosen, strict=True)
        ]
        fields = {"backups": listed, "whole": not errors}
        print_json(fields if drilled is None else {**fields, "drill": asdict(drilled)})
    else:
        print_table(["backup", "objects", "bytes", "records", "result"], rows)
        for error in errors[1:]:
            say(f"{error.message}")
        for manifest in chosen:
            _say_archived(manifest)
    if errors:
        raise errors[0]
    if drilled is not None:
        _report_drill(drilled, output)


def _drill(store: BackupStore, manifest: Manifest, actors: list[str], output: Output) -> DrillResult:
    from viewstamp.embed.actor_classes import import_actors
    from viewstamp.local.drill import drill

    entries = dict(each.partition("=")[::2] for each in actors)
    with WorkProgress(output) as progress:
        return drill(store, manifest, import_actors(entries), on_step=progress.begin, on_bytes=progress.add)


def _report_drill(drilled: DrillResult, output: Output) -> None:
    """Print the result of a drill; exit with 1 if there are differences."""
    if output is not Output.JSON:
        if drilled.archived:
            say("Not compared: these archived records, because the started node has no archive. To compare them, run")
            say("`viewstamp archive check` on the source; or restore the backup with --set archive.directory=DIR, or")
            say("archive.url, start it, and run it there")
        rows: list[tuple[str, object]] = [(f"topic {name}", count) for name, count in drilled.records.items()]
        rows += [(f"actor {name}", count) for name, count in drilled.actors.items()]
        print_table(["started with", "records or instances"], rows)
        state = "equal" if drilled.is_state_compared else "not compared: unknown in the source, or of other code"
        print(f"checksum of the state: {'different' if drilled.differences else state}")
        for difference in drilled.differences:
            say(difference)
    if drilled.differences:
        raise typer.Exit(1)


@app.command()
def restore(
    target: TargetArgument,
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Directory of the new cluster.")],
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, max=9, help="Number of its nodes on this machine. [default: 3]"),
    ] = None,
    members: MemberOption = None,
    backup: BackupOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="TIME|INDEX",
            help="Restore records up to this log time (UTC, e.g. 2026-11-23T10:00:00) or this index.",
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option("--data-dir", metavar="DIR", help="Each node NAME of --member will keep its data in DIR/NAME."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Make an authority and certificates too, and write [tls], for --member.")
    ] = False,
    insecure_network: Annotated[
        bool, typer.Option("--insecure-network", help="Allow --member on other machines without TLS: last resort.")
    ] = False,
    settings: NewSetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a new cluster out of a backup: another id, the same topics, sinks and actors; all sessions have ended.

    It is not started. Nothing of it can act on the old cluster. If the command is interrupted, repeat it.
    With --member it is for other machines: run it once, and copy to each machine the settings and the data of its node.
    """
    from viewstamp.local.restore import RestorePlan, restore_cluster

    until_index, until_time = _cut(until)
    if members and nodes is not None:
        raise typer.BadParameter("--nodes is for a cluster on this machine, --member for several: give one of them")
    if not members and (data_dir or tls or insecure_network):
        raise typer.BadParameter("--data-dir, --tls and --insecure-network need --member NAME=HOST:PORT")
    plan = RestorePlan(
        target=target,
        backup=backup,
        until=until_index,
        until_time=until_time,
        nodes=3 if nodes is None else nodes,
        members=tuple(members_of(members or []).items()),
        data_dir=data_dir or "",
        tls=tls,
        insecure_network=insecure_network,
        settings=tuple(overrides_of(settings).items()),
    )
    with WorkProgress(output) as progress:
        restored = restore_cluster(_open(target), str(directory), plan, on_step=progress.begin, on_bytes=progress.add)
    if output is Output.JSON:
        print_json(asdict(restored))
        return
    done = f"restored backup {restored.backup} as cluster {restored.cluster} in {restored.directory}"
    print(fitted(done, sys.stdout))
    if restored.archived:
        say(
            "These records are archived, and the new nodes have no archive: set [archive] in their settings to the"
            f" archive of cluster {restored.old} before you start them"
        )
    for topic, last in restored.archived.items():
        say(f"  {topic}: up to position {last:,}")
    if not members:
        print(f"start it: {program()} cluster start --dir {directory}")
        return
    rows = [
        (name, address, directory / f"{name}.toml", directory / name) for name, address in restored.addresses.items()
    ]
    print_table(["node", "address", "settings", "data"], rows)
    if tls:
        print(f"certificates: {directory / 'tls'}; keep ca.key off the nodes")
    copy = "Copy to each machine the settings and the data of its node, and of no other node: see docs/backup.md"
    print(fitted(copy, sys.stdout))
    print(f"Then start each node: {program()} node run --config FILE")


@app.command()
def prune(
    target: TargetArgument,
    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Keep the newest N backups.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove old backups, and objects that no remaining backup needs, for example of an interrupted one."""
    from viewstamp.backup.prune import prune as prune_store

    store = _open(target)
    with store.held():
        pruned = prune_store(store, keep)
    if output is Output.JSON:
        print_json(asdict(pruned))
        return
    rows = [("backups", len(pruned.backups)), ("objects", pruned.objects), ("bytes", pruned.bytes)]
    print_table(["removed", "count"], rows)


def _open(target: str) -> BackupStore:
    """Return the store of a target: a URL, or else a directory."""
    if "://" in target and not target.startswith("file://"):
        from viewstamp.backup.fsspec_store import FsspecStore

        return FsspecStore(target)
    from viewstamp.backup.store import DirectoryStore
    from viewstamp.host.disk import RealDisk

    return DirectoryStore(RealDisk(), os.path.abspath(target.removeprefix("file://")))


def _cut(until: str | None) -> tuple[int | None, int | None]:
    """Return the index, or the time in microseconds since 1970, of ``--until``.

    Raises:
      ConfigError: it is neither.
    """
    from datetime import UTC, datetime

    if until is None:
        return None, None
    if until.isdecimal():
        return int(until), None
    try:
        time = datetime.fromisoformat(until)
    except ValueError as error:
        raise ConfigError(
            f"--until {until!r} is neither an index nor a time",
            remedy="write a number, or a time such as 2026-11-23T10:00:00 (UTC) or 2026-11-23T11:00:00+01:00",
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return None, round(time.timestamp() * 1e6)


def _fields(manifest: Manifest) -> dict[str, object]:
    return {
        "backup": manifest.id,
        "cluster": manifest.cluster,
        "node": manifest.node,
        "created": manifest.created_us / 1e6,
        "first_index": manifest.begin,
        "last_index": manifest.end - 1,
        "term": manifest.term,
        "log_time": manifest.log_time / 1e6,
        "snapshot_index": manifest.snapshot.end - 1 if manifest.snapshot is not None else None,
        "bytes": manifest.size,
        "sent_bytes": manifest.sent_bytes,
        "groups": {log.group: {"first_index": log.begin, "last_index": log.end - 1} for log in manifest.groups},
        "previous": manifest.previous,
    }


def _time(time_us: int) -> str:
    from viewstamp.backup.restore import format_time

    return format_time(time_us)[:19]
