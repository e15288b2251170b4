"""The demos: append records, kill nodes meanwhile, and prove that none is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from viewstamp.cli.options import LocalDirOption, OutputOption
from viewstamp.errors import ConfigError
from viewstamp.local.process import nodes_end_with_this_process
from viewstamp.terminal.flags import DEFAULT_DIRECTORY
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json, say
from viewstamp.terminal.show import Show

__all__ = ["demo", "demo_archive", "demo_spark"]

NodesOption = Annotated[int, typer.Option("--nodes", metavar="N", min=3, max=9, help="Number of nodes.")]
KeepOption = Annotated[bool, typer.Option("--keep", help="Keep the data of the cluster, which is stopped.")]


class _Result(Protocol):
    """The result of a demo."""

    @property
    def holds(self) -> bool: ...
    def as_json(self) -> dict[str, object]: ...
    def print(self, path: str, *, keep: bool) -> None: ...


def demo(
    input: Annotated[  # noqa: A002 - the name of the option
        Path | None,
        typer.Option("--input", metavar="FILE", help="Lines to append. [default: flights, or generated lines]"),
    ] = None,
    nodes: NodesOption = 3,
    streams: Annotated[
        int,
        typer.Option("--streams", metavar="N", min=0, max=64, help="Spread the records over N groups. [default: none]"),
    ] = 0,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: KeepOption = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Append a data set to a cluster, kill leaders meanwhile, and prove that no record is lost.

    With --streams the records are spread over groups, two nodes are killed, and a reader of each node has to return all
    records in the same order.
    """
    from viewstamp.demo.run import Demo
    from viewstamp.demo.source import Source

    if input is not None and not input.is_file():
        raise ConfigError(f"{input} is not a file", remedy="name a file of lines with --input, or leave it out")

    def run(path: str, show: Show) -> Coroutine[Any, Any, _Result]:
        source = Source.prepare(path, input, show)
        if streams:
            from viewstamp.demo.streams_run import StreamsDemo

            return StreamsDemo(path, nodes, streams, source, show).run()
        return Demo(path, nodes, source, show).run()

    return _prove(run, directory, keep=keep, output=output)


def demo_spark(
    nodes: NodesOption = 3,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: KeepOption = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="The picture. [default: DIR/demo-spark.png]")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Stream a data set through Spark, kill Spark and the leader meanwhile, and prove that each row is there once.

    Takes about two minutes. Spark and a Java come with `make demo-spark`, or with the extras `spark` and `plot`.
    """
    from viewstamp.demo.directory import PLOT
    from viewstamp.demo.spark_run import SparkDemo, check_demo

    picture = os.path.abspath(directory / PLOT if plot is None else plot)
    check_demo(picture, in_directory=plot is None)
    from viewstamp.spark import ensure_java

    ensure_java()

    def run(path: str, show: Show) -> Coroutine[Any, Any, _Result]:
        return SparkDemo(path, nodes, picture, show).run()

    return _prove(run, directory, keep=keep, output=output)


def demo_archive(
    input: Annotated[  # noqa: A002 - the name of the option
        Path | None,
        typer.Option("--input", metavar="FILE", help="Lines to append. [default: flights, or generated lines]"),
    ] = None,
    nodes: NodesOption = 3,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: KeepOption = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="The picture. [default: DIR/demo-archive.png]")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Archive a data set, kill the leader meanwhile, drop the logs, and prove that each record is read back.

    Takes about a minute. It needs the extra `archive`, and the extra `plot` for the picture.
    """
    from viewstamp.demo.archive_run import ArchiveDemo, check_archive_demo
    from viewstamp.demo.directory import ARCHIVE_PLOT
    from viewstamp.demo.source import Source

    if input is not None and not input.is_file():
        raise ConfigError(f"{input} is not a file", remedy="name a file of lines with --input, or leave it out")
    picture = os.path.abspath(directory / ARCHIVE_PLOT if plot is None else plot)
    check_archive_demo(picture, in_directory=plot is None)

    def run(path: str, show: Show) -> Coroutine[Any, Any, _Result]:
        return ArchiveDemo(path, nodes, Source.prepare(path, input, show), picture, show).run()

    return _prove(run, directory, keep=keep, output=output)


def _prove(
    run: Callable[[str, Show], Coroutine[Any, Any, _Result]], directory: Path, *, keep: bool, output: Output
) -> int:
    """Run a demo in ``directory``, print its result, and remove its data unless it is kept; return the exit code."""
    from viewstamp.demo.directory import DemoDirectory

    path = os.path.abspath(directory)
    with DemoDirectory.taken(path) as taken:
        show = Show(output)
        show.warn_of_memory(path)
        with nodes_end_with_this_process():
            result = run_async(run(path, show))
        if output is Output.JSON:
            print_json(result.as_json())
        else:
            result.print(path, keep=keep)
        taken.finish(keep=keep or not result.holds)
    if not result.holds:
        say(f"viewstamp: the proof failed; all files are kept in {path}")
    return 0 if result.holds else 1
