"""``viewstamp demo`` and ``viewstamp demo-spark``: the main jobs end to end, with real kills and a proof."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from viewstamp.cli.options import LocalDirOption, OutputOption
from viewstamp.errors import ConfigError
from viewstamp.local.process import nodes_end_with_this_process
from viewstamp.terminal.flags import DEFAULT_DIRECTORY
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json, say

__all__ = ["demo", "demo_spark"]


def demo(
    input: Annotated[  # noqa: A002 - the name of the option
        Path | None,
        typer.Option("--input", metavar="FILE", help="Lines to append. [default: the flights, or made ones]"),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=3, max=9, help="Nodes of the cluster.")] = 3,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster's data, stopped, to look at it.")] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Append a real data set to a cluster of real processes, kill leaders meanwhile, and prove that nothing is lost."""
    from viewstamp.demo.directory import DemoDirectory
    from viewstamp.demo.run import Demo
    from viewstamp.demo.source import Source
    from viewstamp.terminal.show import Show

    path = os.path.abspath(directory)
    if input is not None and not input.is_file():
        raise ConfigError(f"{input} is no file", remedy="name a file of lines with --input, or leave it out")
    with DemoDirectory.taken(path) as taken:
        show = Show(output)
        show.warn_of_memory(path)
        source = Source.prepare(path, input, show)
        with nodes_end_with_this_process():
            result = run_async(Demo(path, nodes, source, show).run())
        if output is Output.JSON:
            print_json(result.as_json())
        else:
            result.print(path, keep=keep)
        taken.finish(keep=keep or not result.holds)
    if not result.holds:
        say(f"viewstamp: the proof failed; everything is kept in {path}")
    return 0 if result.holds else 1


def demo_spark(
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=3, max=9, help="Nodes of the cluster.")] = 3,
    directory: LocalDirOption = Path(DEFAULT_DIRECTORY),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster's data, stopped, to look at it.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.png", help="The picture. [default: DIR/demo-spark.png]")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Stream a real data set through Spark into a cluster, kill both meanwhile, and prove that each row is there once.

    Takes about two minutes. Spark and a Java come with `make demo-spark`, or with the extras `spark` and `plot`.
    """
    from viewstamp.demo.directory import PLOT, DemoDirectory
    from viewstamp.demo.spark_run import SparkDemo, check_demo
    from viewstamp.terminal.show import Show

    path = os.path.abspath(directory)
    picture = os.path.join(path, PLOT) if plot is None else os.path.abspath(plot)
    check_demo(picture, in_directory=plot is None)
    from viewstamp.spark import ensure_java

    ensure_java()
    with DemoDirectory.taken(path) as taken:
        show = Show(output)
        show.warn_of_memory(path)
        with nodes_end_with_this_process():
            result = run_async(SparkDemo(path, nodes, picture, show).run())
        if output is Output.JSON:
            print_json(result.as_json())
        else:
            result.print(path, keep=keep)
        taken.finish(keep=keep or not result.holds)
    if not result.holds:
        say(f"viewstamp: the proof failed; everything is kept in {path}")
    return 0 if result.holds else 1
