"""``viewstamp replay``: recovers the records of a cluster from the files of its stopped nodes."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.errors import ConfigError
from viewstamp.local.find import find_cluster
from viewstamp.terminal.output import Output, print_json, print_table
from viewstamp.terminal.progress import WorkProgress

if TYPE_CHECKING:
    from viewstamp.host.disk import RealDisk
    from viewstamp.replay import OfflineReplay

__all__ = ["replay"]

_WARNING: Final = (
    "WARNING: no majority: committed records may be missing, and records that were never committed present"
)
_FINDINGS_MAX: Final = 20


class _Target(NamedTuple):
    kind: str
    name: str


def replay(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="The nodes' data directories, or that of a local cluster.")
    ],
    to: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--to", metavar="parquet PATH | topic NAME", help="Write the records there. [default: count only]"
        ),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="SOURCE", help="Only this topic. May be repeated.")
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Continue without a majority of the members; the result is a guess.")
    ] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Read with Spark, one task for each core.")] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Recover the records from the files of stopped nodes: one log, in order, each record once.

    It takes the log that an election among a majority of the members would choose, and repairs damage in one replica
    from another. It does not change the directories. Without --to it reads, verifies and counts all records. --dir and
    --cluster name the live cluster for --to topic.

    Exits with 7, and writes nothing, if replicas contradict each other or a record is damaged in all of them.
    """
    target = _target(to)
    paths = [os.path.abspath(each) for each in directories]
    with WorkProgress(output) as progress:
        if spark:
            opened, digest = _on_spark(paths, target, topic or [], progress, unsafe=unsafe)
        else:
            opened, digest = _here(paths, target, topic or [], progress, directory, cluster, timeout, unsafe=unsafe)
    _print(opened, digest, output)
    if opened.problem is not None:
        raise opened.problem


def _here(
    paths: list[str],
    target: _Target | None,
    topics: list[str],
    progress: WorkProgress,
    directory: Path | None,
    cluster: str | None,
    timeout: float,
    *,
    unsafe: bool,
) -> tuple[OfflineReplay, str | None]:
    """Replay in this process."""
    from viewstamp.host.disk import RealDisk
    from viewstamp.replay import OfflineReplay
    from viewstamp.replay.replay import total_bytes

    disk = RealDisk()
    progress.begin("reading", total_bytes(disk, paths))
    opened = OfflineReplay.open(disk, paths, unsafe=unsafe, on_bytes=progress.add)
    if topics:
        opened = opened.only(topics)
    _print_findings(opened, progress)
    if opened.problem is not None:
        return opened, None
    return opened, _write(disk, opened, target, progress, directory, cluster, timeout)


def _on_spark(
    paths: list[str], target: _Target | None, topics: list[str], progress: WorkProgress, *, unsafe: bool
) -> tuple[OfflineReplay, str | None]:
    """Replay on a local session of Spark. Raises ConfigError for a target other than parquet."""
    if target is not None and target.kind != "parquet":
        raise ConfigError(
            "--spark writes parquet, not a topic",
            remedy="leave --spark out, because one process can fill a topic as fast as Spark",
        )
    progress.note("starting Spark")
    from viewstamp.spark.local_spark import is_running, session

    was_running = is_running()  # Also reports what is missing for Spark, before the imports below need it.
    from viewstamp.spark.wal_source import planned, write_parquet

    spark = session("viewstamp replay", cores=os.cpu_count() or 1)
    try:
        progress.note("reading headers")
        with planned(spark, paths, topics=topics, unsafe=unsafe) as plan:
            _print_findings(plan.replay, progress)
            if plan.frame is None:
                return plan.replay, None
            progress.note("verifying" if target is None else "writing")
            if target is None:
                plan.frame.write.format("noop").mode("overwrite").save()
            else:
                write_parquet(plan, target.name)
            return plan.replay, plan.digest()
    finally:
        if not was_running:
            spark.stop()


def _print_findings(opened: OfflineReplay, progress: WorkProgress) -> None:
    """Print the findings, at most 20."""
    if not opened.is_majority:
        progress.note(_WARNING)
    for finding in opened.findings[:_FINDINGS_MAX]:
        progress.note(str(finding))
    if len(opened.findings) > _FINDINGS_MAX:
        progress.note(f"... and {len(opened.findings) - _FINDINGS_MAX} more findings")


def _target(to: tuple[str, str] | None) -> _Target | None:
    if to is None:
        return None
    target = _Target(*to)
    if target.kind == "parquet":
        from viewstamp.replay.parquet import check_target

        check_target(target.name)
    elif target.kind != "topic":
        raise ConfigError(f"--to {target.kind} is unknown", remedy="write --to parquet PATH, or --to topic NAME")
    return target


def _write(
    disk: RealDisk,
    opened: OfflineReplay,
    target: _Target | None,
    progress: WorkProgress,
    directory: Path | None,
    cluster: str | None,
    timeout: float,
) -> str:
    """Read all records, write them to the target, and return their digest."""
    from viewstamp.replay import Digest, ExtentReader

    assert opened.plan is not None, "without a plan there is a problem, which was raised"
    digest = Digest()
    with ExtentReader(disk) as reader:
        progress.begin("verifying" if target is None else "writing", opened.plan.bytes)
        runs = opened.runs(reader, digest, progress.add)
        if target is None:
            for _ in runs:
                pass
        elif target.kind == "parquet":
            from viewstamp.replay.parquet import write_parquet

            write_parquet(target.name, runs)
        else:
            from viewstamp.replay.topic import append_to_topic, check_one_topic
            from viewstamp.terminal.loop import run_async

            check_one_topic(opened.plan)
            live = find_cluster(directory, cluster)

            async def append() -> None:
                assert opened.plan is not None, "checked above"
                async with live.connect(timeout) as client:
                    count = await append_to_topic(client, target.name, opened.plan, runs, timeout=timeout)
                progress.note(f"{count:,} records appended to {target.name}; all others were there already")

            run_async(append())
    return digest.hexdigest()


def _print(opened: OfflineReplay, digest: str | None, output: Output) -> None:
    fields = asdict(opened.summary(digest))
    if output is Output.JSON:
        findings = [asdict(finding) for finding in opened.findings]
        print_json({**fields, "majority": opened.is_majority, "findings": findings})
        return
    topics = fields.pop("topics")
    print_table(["", "found"], [(name.replace("_", " "), value) for name, value in fields.items()])
    if topics:
        print()
        print_table(["topic", "records"], list(topics.items()))
