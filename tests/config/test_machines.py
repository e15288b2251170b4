"""The settings files of nodes on several machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from viewstamp.config import create_machine_files, create_machine_like, load_settings, make_certificates
from viewstamp.config.model import NodeSettings, keys_of
from viewstamp.errors import ConfigError

MEMBERS = {"n1": "db1.example.net:7001", "n2": "10.0.0.2:7001", "n3": "[fd00::3]:7001"}


def test_each_member_gets_a_file_that_loads(tmp_path: Path) -> None:
    files = create_machine_files(str(tmp_path), MEMBERS, data_dir="/var/lib/viewstamp", insecure_network=True)
    loaded = {name: load_settings(file, environment={}).settings for name, file in files.items()}
    assert [*loaded] == [*MEMBERS]
    assert len({settings.cluster.id for settings in loaded.values()}) == 1
    assert {name: settings.node.advertise for name, settings in loaded.items()} == MEMBERS
    assert all(settings.cluster.members == MEMBERS for settings in loaded.values())
    assert loaded["n2"].node.data_dir == "/var/lib/viewstamp/n2"


def test_node_listens_at_its_address_and_for_a_name_at_every_address(tmp_path: Path) -> None:
    """A machine often resolves its own name to a loopback address, so a node must not listen at its name."""
    files = create_machine_files(str(tmp_path), MEMBERS, insecure_network=True)
    listens = [load_settings(file, environment={}).settings.node.listen for file in files.values()]
    assert listens == ["0.0.0.0:7001", "10.0.0.2:7001", "[fd00::3]:7001"]


def test_lines_that_show_a_default_are_that_default_and_may_be_activated(tmp_path: Path) -> None:
    [file, *_] = create_machine_files(str(tmp_path), MEMBERS, insecure_network=True).values()
    before = load_settings(file, environment={})
    text = Path(file).read_text(encoding="utf-8")
    active = re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE)
    assert active.count("\n#") < text.count("\n#")
    Path(file).write_text(active, encoding="utf-8")
    after = load_settings(file, environment={})
    differing = {old[0] for old, new in zip(before.rows(), after.rows(), strict=True) if old[1] != new[1]}
    assert differing == {"node.health"}, "it is off by default, so its line shows an example"


def test_chosen_settings_are_written_with_units_beside_their_comments(tmp_path: Path) -> None:
    chosen = {
        "wal.bytes_max": "20GiB",
        "wal.segment_bytes": "16777216",
        "timeouts.election_ms": "1s",
        "node.health": "127.0.0.1:7101",
        "actors.bank.eu": "bank:Bank",
    }
    [file] = create_machine_files(
        str(tmp_path), MEMBERS, only="n2", cluster_id="shop", insecure_network=True, settings=chosen
    ).values()
    text = Path(file).read_text(encoding="utf-8")
    assert re.search(r'^bytes_max = "20GiB" +# ', text, re.MULTILINE)
    assert '\nsegment_bytes = "16MiB"\n' in text
    assert re.search(r'^election_ms = "1s" +# ', text, re.MULTILINE)
    settings = load_settings(file, environment={}).settings
    assert (settings.cluster.id, settings.actors) == ("shop", {"bank.eu": "bank:Bank"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n2.toml"]


def test_machines_that_others_reach_need_a_word_for_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="without TLS connections are neither") as caught:
        create_machine_files(str(tmp_path / "files"), MEMBERS)
    assert "--tls" in caught.value.remedy
    assert not (tmp_path / "files").exists()
    create_machine_files(str(tmp_path / "files"), {"n1": "localhost:7001", "n2": "127.0.0.2:7001"})


@pytest.mark.parametrize(
    ("members", "options", "expected"),
    [
        ({"a b": "db1:7001"}, {}, "a b"),
        ({"n1": "db1"}, {}, "'db1' is no address"),
        ({"n1": "db1:0"}, {}, "port from 1 to 65535"),
        ({"n1": "db1:7001", "n2": "db1:7001"}, {}, "one node per address"),
        ({}, {}, "0 members are not allowed"),
        ({"n1": "db1:7001"}, {"only": "n2"}, "--node n2 is no member; the members are n1"),
        ({"n1": "db1:7001"}, {"settings": {"node.listen": "db1:1"}}, "follows from --member"),
        ({"n1": "db1:7001"}, {"settings": {"wal.bytes_max": "1kB"}}, "bytes_max = 1kB is not allowed"),
        ({"n1": "db1:7001"}, {"settings": {"wal.byts": "1kB"}}, "there is no key byts"),
    ],
)
def test_a_mistake_leaves_no_files(
    tmp_path: Path, members: dict[str, str], options: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        create_machine_files(str(tmp_path / "files"), members, insecure_network=True, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "files").exists()


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "n2.toml").write_text("precious")
    with pytest.raises(ConfigError, match=r"already holds n2\.toml"):
        create_machine_files(str(tmp_path), MEMBERS, insecure_network=True)
    assert [path.name for path in tmp_path.iterdir()] == ["n2.toml"]


def test_names_with_a_dot_are_quoted(tmp_path: Path) -> None:
    files = create_machine_files(str(tmp_path), {"eu.n1": "127.0.0.1:7001"})
    assert load_settings(files["eu.n1"], environment={}).settings.cluster.members == {"eu.n1": "127.0.0.1:7001"}  # type: ignore[index]


def test_a_node_joins_with_the_settings_of_a_member(tmp_path: Path) -> None:
    chosen = {"wal.bytes_max": "20GiB", "node.health": "127.0.0.1:7101", "actors.bank": "bank:Bank"}
    files = create_machine_files(str(tmp_path), MEMBERS, data_dir="/data", insecure_network=True, settings=chosen)
    like_file = next(iter(files.values()))
    like = load_settings(like_file, environment={})
    made = load_settings(
        create_machine_like(str(tmp_path / "new"), "n4", "db4.example.net:7001", like, like_file), environment={}
    ).settings
    assert (made.node.id, made.node.advertise, made.node.data_dir) == ("n4", "db4.example.net:7001", "/data/n4")
    assert (made.cluster.members, made.cluster.learners) == (MEMBERS, {"n4": "db4.example.net:7001"})
    assert (made.cluster.id, made.wal, made.actors) == (
        like.settings.cluster.id,
        like.settings.wal,
        {"bank": "bank:Bank"},
    )
    assert (made.node.health, made.cluster.leader_hint) == ("127.0.0.1:7101", "")


def test_files_with_tls_name_the_certificates_that_are_made_for_them(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    files = create_machine_files(str(tmp_path), MEMBERS, tls=True)
    made = make_certificates(str(tmp_path), clients=["admin"])
    loaded = {name: load_settings(file, environment={}).settings for name, file in files.items()}
    assert [each.tls.files for each in made[:3]] == [settings.tls.files for settings in loaded.values()]
    assert not any(settings.node.insecure_network for settings in loaded.values())
    like_file = files["n2"]  # type: ignore[index]
    like = load_settings(like_file, environment={})
    joined = create_machine_like(str(tmp_path), "n4", "db4.example.net:7001", like, like_file)
    assert Path(joined).read_text(encoding="utf-8").count("[tls]") == 1
    files_of_n4 = load_settings(joined, environment={}).settings.tls.files
    assert files_of_n4 in [each.tls.files for each in make_certificates(str(tmp_path)) if each.is_new]


def test_every_commented_setting_exists() -> None:
    from viewstamp.config import machines

    assert set(machines._COMMENTS) <= {f"{key.section}.{key.name}" for key in keys_of(NodeSettings)}
