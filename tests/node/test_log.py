from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import structlog

from viewstamp.host.clock import RealClock
from viewstamp.host.disk import RealDisk
from viewstamp.host.interfaces import Host
from viewstamp.host.network import RealNetwork
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node.node import Node
from viewstamp.node.options import NodeOptions
from viewstamp.streams.machine import Streams


async def test_a_log_line_has_the_term_at_the_time_of_writing(tmp_path: Path) -> None:
    """A logger is bound once for the life of a node, while the term rises."""
    out = io.StringIO()
    log: Any = structlog.wrap_logger(structlog.WriteLogger(out), processors=[structlog.processors.JSONRenderer()])
    options = NodeOptions(
        node=NodeId("n1"),
        cluster=ClusterId("c"),
        data_dir=str(tmp_path / "n1"),
        listen="127.0.0.1:0",
        members={NodeId("n1"): "127.0.0.1:0"},
        leader_hint="n1",
    )
    node = Node(
        options,
        Host(RealClock(), RealDisk(), RealNetwork(), random.SystemRandom()),
        Streams(),
        log,
        machine_of=lambda _: Streams(),
    )
    node._logger.info("before")
    await node.start()
    await node.wait_running(10)
    node._logger.info("after")
    await node.stop()
    lines = {line["event"]: line for line in map(json.loads, out.getvalue().splitlines())}
    assert (lines["before"]["node"], lines["before"]["term"]) == ("n1", 0)
    assert (lines["after"]["node"], lines["after"]["term"]) == ("n1", 1)
