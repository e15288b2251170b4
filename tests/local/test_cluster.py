"""What the files of a local cluster say about who has to answer."""

from __future__ import annotations

from pathlib import Path

from viewstamp.client.routing import ExpectedNode
from viewstamp.config import create_cluster
from viewstamp.host.disk import RealDisk
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.node import is_process_of
from viewstamp.wal.control_file import ControlFile, ControlState


def test_a_directory_names_for_each_address_the_node_that_has_to_answer_there_and_its_incarnation(
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
    assert cluster.node("n1").identity.incarnation == ""  # The doctor has to be able to ask all the same.


def test_only_the_process_that_the_directory_knows_counts_as_the_node(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1, {})
    (node,) = LocalCluster.open(tmp_path).nodes.values()
    assert node.pid() is None
    assert not is_process_of(node, {"process": 1})
    assert is_process_of(node, {})  # An older release does not say.
