"""The files of a new local cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from viewstamp.config import create_cluster, create_node, free_addresses, load_settings, node_file
from viewstamp.errors import ConfigError, StorageError
from viewstamp.ids import NodeId


def test_the_files_of_a_new_cluster_load_and_agree(tmp_path: Path) -> None:
    directory = str(tmp_path / "with a space" / "cluster")
    nodes = create_cluster(directory, 3)
    loaded = [load_settings(node_file(directory, node), environment={}).settings for node in nodes]
    assert nodes == ["n1", "n2", "n3"]
    assert [settings.node.id for settings in loaded] == nodes
    assert [settings.node.listen for settings in loaded] == list(loaded[0].cluster.members.values())
    assert all(settings.cluster == loaded[0].cluster for settings in loaded)
    assert loaded[2].node.data_dir == f"{directory}/n3"
    assert len(loaded[0].cluster.id) == 32


def test_settings_of_a_new_cluster_stand_in_every_file(tmp_path: Path) -> None:
    settings = {
        "actors.inventory": "shop:Inventory",
        "wal.bytes_max": "67108864",
        "actors.bank.eu": "bank:Bank",
        "snapshots.restart_seconds_max": "2.5",
        "wal.durability": "interval_may_lose_acknowledged_writes",
    }
    for node in create_cluster(str(tmp_path), 3, settings):
        loaded = load_settings(node_file(str(tmp_path), node), environment={})
        file = f"file {tmp_path}/{node}.toml"
        chosen = {name: value for name, value, origin in loaded.rows() if origin == file}
        expected = {**settings, "wal.bytes_max": 67108864, "snapshots.restart_seconds_max": 2.5}
        assert {name: chosen[name] for name in settings} == expected


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("wal.bytes_max", "some", "--set wal.bytes_max: "),
        ("wal.bytes_max", "1048576", r"flag --set: \[wal\] bytes_max = 1MiB is not allowed"),
        ("wal.bytes", "1", "there is no key bytes in"),
        ("node.id", "n7", "--set node.id: "),
    ],
)
def test_a_wrong_setting_leaves_no_files(tmp_path: Path, setting: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        create_cluster(str(tmp_path / "cluster"), 3, {setting: value})
    assert not (tmp_path / "cluster").exists()


def test_only_a_cluster_that_is_to_be_broken_obeys_chaos(tmp_path: Path) -> None:
    create_cluster(str(tmp_path / "kept"), 1)
    create_cluster(str(tmp_path / "tried"), 1, chaos=True)
    obeys = {
        name: load_settings(tmp_path / name / "n1.toml", environment={}).settings.node.chaos
        for name in ("kept", "tried")
    }
    assert obeys == {"kept": False, "tried": True}


def test_a_node_that_joins_is_a_learner_with_the_settings_of_the_others(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 3, {"actors.bank": "bank:Bank", "wal.bytes_max": "67108864"}, chaos=True)
    like_file = node_file(str(tmp_path), "n2")
    like = load_settings(like_file, environment={}).settings
    voters = {NodeId("n2"): "127.0.0.1:7002", NodeId("n3"): "127.0.0.1:7003"}
    file = create_node(str(tmp_path), "n4", like, like_file, voters)
    made = load_settings(file, environment={}).settings
    assert (made.node.id, made.node.data_dir, made.node.chaos) == ("n4", f"{tmp_path}/n4", True)
    assert (made.cluster.members, made.cluster.learners) == (voters, {"n4": made.node.listen})
    assert (made.cluster.id, made.actors, made.wal) == (like.cluster.id, like.actors, like.wal)
    assert made.cluster.leader_hint == ""


def test_a_node_joins_a_cluster_with_a_member_that_has_lost_its_disk(tmp_path: Path) -> None:
    """The group uses a longer id for that node, which settings may not contain."""
    create_cluster(str(tmp_path), 3)
    like_file = node_file(str(tmp_path), "n2")
    like = load_settings(like_file, environment={}).settings
    voters = {NodeId("n2"): "127.0.0.1:7002", NodeId("n3~8c21f0aa"): "127.0.0.1:7003"}
    made = load_settings(create_node(str(tmp_path), "n4", like, like_file, voters), environment={}).settings
    assert made.cluster.members == {"n2": "127.0.0.1:7002", "n3": "127.0.0.1:7003"}


def test_a_name_that_was_used_before_is_not_given_again(tmp_path: Path) -> None:
    create_cluster(str(tmp_path), 1)
    like_file = node_file(str(tmp_path), "n1")
    like = load_settings(like_file, environment={}).settings
    (tmp_path / "n2").mkdir()
    for name in ("n1", "n2"):
        with pytest.raises(ConfigError, match=f"{name}.* exists already"):
            create_node(str(tmp_path), name, like, like_file, like.cluster.members)
    with pytest.raises(ConfigError, match="is not allowed"):
        create_node(str(tmp_path), "-n3", like, like_file, like.cluster.members)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n1.toml", "n2"]


def test_two_clusters_have_different_ids(tmp_path: Path) -> None:
    create_cluster(str(tmp_path / "a"), 1)
    create_cluster(str(tmp_path / "b"), 1)
    ids = {load_settings(tmp_path / name / "n1.toml", environment={}).settings.cluster.id for name in "ab"}
    assert len(ids) == 2


@pytest.mark.parametrize("name", ["n2.toml", "n1"])
def test_existing_files_are_never_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match=f"already holds {name}"):
        create_cluster(str(tmp_path), 3)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("nodes", [0, -1, 10])
def test_a_cluster_of_no_nodes_or_of_too_many_is_refused(tmp_path: Path, nodes: int) -> None:
    with pytest.raises(ConfigError, match=f"nodes = {nodes} is not allowed; allowed: 1 to 9"):
        create_cluster(str(tmp_path / "cluster"), nodes)
    assert not (tmp_path / "cluster").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write to"):
        create_cluster(str(tmp_path / "file" / "cluster"), 3)


def test_free_addresses_are_different_and_on_loopback() -> None:
    addresses = free_addresses(9)
    assert len(set(addresses)) == 9
    assert all(address.startswith("127.0.0.1:") for address in addresses)
