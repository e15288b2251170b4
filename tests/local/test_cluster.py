"""The identity that a local cluster's files require of each node that answers."""

from __future__ import annotations

from pathlib import Path

from viewstamp.client.routing import ExpectedNode
from viewstamp.config import create_cluster
from viewstamp.host.disk import RealDisk
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node import is_process_of
from viewstamp.wal.control_file import ControlFile, ControlState


def test_target_expects_the_node_and_incarnation_of_the_files_at_each_address(
    tmp_path: Path,
) -> None:
    create_cluster(str(tmp_path), 2, {})
    cluster = LocalCluster.open(tmp_path)
    (tmp_path / "n1").mkdir()
    control = ControlFile.open(RealDisk(), str(tmp_path / "n1"))
    control.write(ControlState(cluster_id=cluster.id, node_id="n1", incarnation="aa"))
    expected = cluster.target.expected
    assert expected == {
        cluster.node("n1").address: ExpectedNode(
            node="n1",
            incarnation="aa",
            file=str(tmp_path / "n1.toml"),
            directory=str(tmp_path / "n1"),
            directory_id=expected[cluster.node("n1").address].directory_id,
        ),
        cluster.node("n2").address: ExpectedNode(
            node="n2", file=str(tmp_path / "n2.toml"), directory=str(tmp_path / "n2")
        ),
    }
    assert expected[cluster.node("n1").address].directory_id, "a copy of the directory has another one"
    for name in ("control-a", "control-b"):
        (tmp_path / "n1" / name).write_bytes(b"damaged")
    assert cluster.node("n1").identity.incarnation == ""  # So that the doctor can still ask it.


def test_only_the_process_of_the_directory_counts_as_the_node(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1, {})
    (node,) = LocalCluster.open(tmp_path).nodes.values()
    assert node.pid() is None
    assert not is_process_of(node, {"process": 1})
    assert is_process_of(node, {})  # An older release does not report its process.


def test_a_node_that_another_command_stopped_while_it_started_is_said_to_be_stopped(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1, {})
    (node,) = LocalCluster.open(tmp_path).nodes.values()
    log = Path(node.log_file)
    log.parent.mkdir()
    log.write_text('{"level": "info", "event": "= state"}\n{"level": "info", "event": "= node stopped"}\n')
    assert str(node.last_words()) == "n1 was stopped while it started, for example by another `cluster stop`"
    log.write_text("killed\n")
    assert str(node.last_words()) == "n1 did not start: killed"
