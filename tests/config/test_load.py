"""Settings from file, environment and flags, and the errors about wrong ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from viewstamp.config import LoadedSettings, load_settings
from viewstamp.config.model import NodeSettings, keys_of
from viewstamp.errors import ConfigError

GOOD = """
[node]
id = "n1"
data_dir = "n1"
listen = "127.0.0.1:7001"
[cluster]
id = "5c0e"
members = { n1 = "127.0.0.1:7001", n2 = "127.0.0.1:7002", n3 = "127.0.0.1:7003" }
leader_hint = "n1"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "n1.toml"
    path.write_text(GOOD)
    return path


def load(file: Path, *, environment: dict[str, str] | None = None, **overrides: str) -> LoadedSettings:
    return load_settings(
        file, environment=environment or {}, overrides={k.replace("__", "."): v for k, v in overrides.items()}
    )


def refusal(file: Path, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(file, environment=environment)
    assert caught.value.remedy
    return caught.value.message


def test_a_file_with_the_required_keys_is_enough(file: Path) -> None:
    settings = load(file).settings
    assert settings.node.id == "n1"
    assert settings.node.data_dir == str(file.parent / "n1")
    assert settings.node.advertise == "127.0.0.1:7001"
    assert settings.cluster.members == {"n1": "127.0.0.1:7001", "n2": "127.0.0.1:7002", "n3": "127.0.0.1:7003"}
    assert settings.limits.record_bytes_max == 1024 * 1024


def test_flags_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    file.write_text(GOOD + "[timeouts]\nheartbeat_ms = 20\nelection_ms = 200\ntick_ms = 5\n")
    environment = {"VIEWSTAMP_TIMEOUTS__HEARTBEAT_MS": "30", "VIEWSTAMP_TIMEOUTS__ELECTION_MS": "400"}
    loaded = load(file, environment=environment, timeouts__election_ms="500")
    origins = {name: (value, origin) for name, value, origin in loaded.rows()}
    assert origins["timeouts.tick_ms"] == (5, f"file {file}")
    assert origins["timeouts.heartbeat_ms"] == (30, "environment VIEWSTAMP_TIMEOUTS__HEARTBEAT_MS")
    assert origins["timeouts.election_ms"] == (500, "flag --set")
    assert origins["timeouts.request_s"] == (30.0, "default")


def test_every_setting_can_be_given_in_the_environment(file: Path) -> None:
    texts = {
        "node.data_dir": "elsewhere",
        "cluster.members": "n1=127.0.0.1:1,n2=[::1]:2",
        "cluster.learners": "n9=127.0.0.1:9",
        "node.insecure_network": "true",
        "node.chaos": "true",
        "timeouts.leases": "true",
        "timeouts.request_s": "1.5",
        "snapshots.restart_seconds_max": "0",
    }
    for name, value, _ in load(file).rows():
        variable = "VIEWSTAMP_" + name.replace(".", "__").upper()
        loaded = load(file, environment={variable: texts.get(name, str(value))})
        origins = {row: origin for row, _, origin in loaded.rows()}
        assert origins[name] == f"environment {variable}"
    changed = load(file, environment={"VIEWSTAMP_CLUSTER__MEMBERS": texts["cluster.members"]}).settings
    assert changed.cluster.members == {"n1": "127.0.0.1:1", "n2": "[::1]:2"}


def test_a_data_directory_from_the_environment_starts_at_the_current_directory(file: Path) -> None:
    loaded = load(file, environment={"VIEWSTAMP_NODE__DATA_DIR": "elsewhere"})
    assert loaded.settings.node.data_dir == os.path.abspath("elsewhere")


def test_a_variable_that_names_no_section_is_left_alone(file: Path) -> None:
    assert load(file, environment={"VIEWSTAMP_CLUSTER": "127.0.0.1:1", "OTHER__KEY": "1"}).settings.node.id == "n1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[node]\nid = "n1"\nlisen = "x"',
            '[node] lisen = "x": there is no key lisen in [node] (did you mean listen?)',
        ),
        ("[timeout]\ntick_ms = 1", "[timeout]: there is no section [timeout] (did you mean timeouts?)"),
        ("[wal]\nrecord_bytes_max = 1", "there is no key record_bytes_max in [wal], but there is one in [limits]"),
        ("node = 3", "node = 3 is not allowed; allowed: a section of this name"),
        ("[node]\nid = 7", "[node] id = 7 is not a string; allowed: a string: 1 to 64 of the characters"),
        ("[limits]\nrecord_bytes_max = true", "record_bytes_max = true is not a size; allowed: a size from 1B to 1GiB"),
        ("[limits]\nrecord_bytes_max = 1.5", "record_bytes_max = 1.5 is not a size"),
        ("[timeouts]\nrequest_s = 'soon'", 'request_s = "soon" is not a duration; allowed: a duration from 100ms'),
        ("[timeouts]\nrequest_s = nan", "request_s = NaN"),
        ("[cluster]\nmembers = { n1 = 7001 }", 'members = {"n1": 7001} is not a table of strings'),
        ("[node]\nid = 'n1'\nid = 'n2'", "is not valid TOML: "),
        ("[node\n", "is not valid TOML: "),
        ('[node]\nid = "n1"\nlisten = "127.0.0.1:1"', "[node] data_dir is missing; allowed: a directory"),
    ],
)
def test_a_mistake_in_a_file_is_named(file: Path, text: str, expected: str) -> None:
    file.write_text(text if "request_s = nan" not in text else GOOD + text)
    message = refusal(file)
    assert message.startswith(str(file))
    assert expected.replace("NaN", "nan") in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"n1"\n', '"a b"\n', "[node] id = 'a b' is not allowed; allowed: 1 to 64 of the characters"),
        ('listen = "127.0.0.1:7001"', 'listen = "127.0.0.1"', "[node] listen = '127.0.0.1' is not allowed"),
        ('listen = "127.0.0.1:7001"', 'listen = "127.0.0.1:0"', "port from 1 to 65535"),
        ('id = "n1"\n', 'id = "n4"\n', "[node] id = 'n4' is not allowed; allowed: an id from [cluster] members"),
        (
            'leader_hint = "n1"',
            'leader_hint = "n7"',
            "leader_hint = 'n7' is not allowed; allowed: a member (n1, n2, n3)",
        ),
        ('leader_hint = "n1"', 'learners = { n2 = "127.0.0.1:9" }', "a node that is not also in members"),
        (
            "127.0.0.1:7003",
            "127.0.0.1:7002",
            "members = '127.0.0.1:7002' is not allowed; allowed: one node per address",
        ),
        (
            "[cluster]",
            "[limits]\nrecord_bytes_max = 0\n[cluster]",
            "record_bytes_max = 0 is not allowed; allowed: a size from 1B",
        ),
        (
            "[cluster]",
            "[limits]\nrecord_bytes_max = 9999999\n[cluster]",
            "(default): [limits] batch_bytes_max = 8MiB",
        ),
        (
            "[cluster]",
            "[timeouts]\nheartbeat_ms = 200\n[cluster]",
            "election_ms = 300ms is not allowed; allowed: at least 400ms",
        ),
        (
            "[cluster]",
            "[wal]\nbytes_max = 20000000\nsegment_bytes = 4194304\n[cluster]",
            "[wal] bytes_max = 20MB is not allowed; allowed: at least 32MiB, which is 8 * segment_bytes",
        ),
        (
            "[cluster]",
            "[wal]\nbytes_max = 10000000\n[cluster]",
            "bytes_max = 10MB is not allowed; allowed: at least 16MiB, which is 2 * [limits] batch_bytes_max",
        ),
        (
            "[cluster]",
            "[wal]\nbytes_max = 67108864\n[snapshots]\nlog_bytes = 33554432\n[cluster]",
            "allowed: at least 128MiB, which is 4 * [snapshots] log_bytes",
        ),
        ("[cluster]", "[snapshots]\nkept_max = 1\n[cluster]", "[snapshots] kept_max = 1 is not allowed; allowed: an"),
        (
            "[cluster]",
            "[wal]\ndurability = 'interval'\n[cluster]",
            'durability = \'interval\' is not allowed; allowed: "sync" or "interval_may_lose_acknowledged_writes"',
        ),
        (
            "[cluster]",
            "[actors]\ninventory = 'shop.stock.Inventory'\n[cluster]",
            "[actors] inventory = 'shop.stock.Inventory' is not allowed; allowed: \"module:Class\"",
        ),
        ("[cluster]", "[actors]\n'an actor' = 'shop:Stock'\n[cluster]", "for a name of 1 to 64 of the characters"),
        ("[cluster]", "[actors]\na.b = 'shop:Stock'\n[cluster]", '[actors] a = {"b": "shop:Stock"} is not a string'),
    ],
)
def test_contradicting_settings_are_refused(file: Path, old: str, new: str, expected: str) -> None:
    file.write_text(GOOD.replace(old, new, 1))
    assert expected in refusal(file)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "[::]", "example.org"])
def test_an_address_that_others_can_reach_is_refused_without_the_word_for_it(file: Path, host: str) -> None:
    file.write_text(GOOD.replace('listen = "127.0.0.1:7001"', f'listen = "{host}:7001"\nadvertise = "10.0.0.1:7001"'))
    message = refusal(file)
    assert f"[node] listen = '{host}:7001' can be reached from other machines" in message
    assert "or any with [tls]" in message
    file.write_text(file.read_text().replace("[cluster]", "insecure_network = true\n[cluster]"))
    assert load(file).settings.node.listen == f"{host}:7001"


@pytest.mark.parametrize("host", ["127.9.9.9", "[::1]", "localhost"])
def test_a_loopback_address_needs_no_word(file: Path, host: str) -> None:
    assert load(file, node__listen=f"{host}:7001").settings.node.listen == f"{host}:7001"


def test_an_address_without_possible_connections_is_not_advertised(file: Path) -> None:
    file.write_text(GOOD.replace('listen = "127.0.0.1:7001"', 'listen = "0.0.0.0:7001"\ninsecure_network = true'))
    assert "an address that others can connect to" in refusal(file)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("VIEWSTAMP_NODE__LISEN", "x", "environment VIEWSTAMP_NODE__LISEN=x: there is no key lisen in [node]"),
        ("VIEWSTAMP_NOED__LISTEN", "x", "there is no section [noed] (did you mean node?)"),
        ("VIEWSTAMP_WAL__BYTES_MAX", "a lot", 'VIEWSTAMP_WAL__BYTES_MAX: [wal] bytes_max = "a lot" is not a size'),
        ("VIEWSTAMP_NODE__INSECURE_NETWORK", "yes", "is not true or false; allowed: true or false"),
        ("VIEWSTAMP_CLUSTER__MEMBERS", "n1", 'members = "n1" is not a table of strings'),
        ("VIEWSTAMP_NODE__LISTEN", "nowhere", "environment VIEWSTAMP_NODE__LISTEN: [node] listen = 'nowhere'"),
    ],
)
def test_a_mistake_in_the_environment_is_named(file: Path, variable: str, text: str, expected: str) -> None:
    assert expected in refusal(file, **{variable: text})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert re.match(r"cannot read .*missing\.toml: No such file", refusal(tmp_path / "missing.toml"))
    assert "Is a directory" in refusal(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'[node]\nid = "\xe9"\n')
    assert "is not UTF-8" in refusal(tmp_path / "latin.toml")


def test_the_error_about_a_flag_without_a_section_shows_its_form(file: Path) -> None:
    with pytest.raises(ConfigError, match="has no section"):
        load(file, listen="127.0.0.1:1")


def test_every_setting_has_its_allowed_values_and_an_allowed_default() -> None:
    for key in keys_of(NodeSettings):
        assert key.allowed
        assert key.required or key.check(key.default), str(key)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("bytes_max", "segment_bytes", "log_bytes"),
    [
        (0, 16 * MIB, 64 * MIB),
        (16 * MIB, MIB, 4 * MIB),
        (64 * MIB, 4 * MIB, 16 * MIB),
        (100_000_000, 4 * MIB, 25_000_000),
        (2**40, 16 * MIB, 64 * MIB),
    ],
)
def test_sizes_follow_from_the_logs_bound_and_name_it(
    file: Path, bytes_max: int, segment_bytes: int, log_bytes: int
) -> None:
    """A bounded log has to drop small parts of itself, and to be snapshot well before it is full."""
    loaded = load(file, wal__bytes_max=str(bytes_max))
    rows = {name: (value, origin) for name, value, origin in loaded.rows()}
    origin = "from wal.bytes_max" if bytes_max else "default"
    assert rows["wal.segment_bytes"] == (segment_bytes, origin)
    assert rows["snapshots.log_bytes"] == (log_bytes, origin)


def test_a_size_that_was_chosen_stays(file: Path) -> None:
    rows = {
        name: (value, origin)
        for name, value, origin in load(file, wal__bytes_max=str(64 * MIB), wal__segment_bytes="65536").rows()
    }
    assert rows["wal.segment_bytes"] == (65536, "flag --set")


def test_actors_have_names_of_the_users_own(file: Path) -> None:
    file.write_text(GOOD + '[actors]\ninventory = "shop.stock:Inventory"\n"bank.eu" = "bank:Account.Inner"\n')
    loaded = load(file, environment={"VIEWSTAMP_ACTORS__TILL": "shop:Till"}, actors__inventory="other:Inventory")
    assert loaded.settings.actors == {
        "inventory": "other:Inventory",
        "bank.eu": "bank:Account.Inner",
        "till": "shop:Till",
    }
    assert loaded.rows()[-1] == ("actors.till", "shop:Till", "environment VIEWSTAMP_ACTORS__TILL")
    assert loaded.directory == str(file.parent)


def test_the_archive_can_be_a_bucket(file: Path) -> None:
    file.write_text(GOOD + '[archive]\nurl = "s3://bucket/a/folder"\n')
    assert load(file).settings.archive.where == "s3://bucket/a/folder"
    file.write_text(GOOD + '[archive]\ndirectory = "old"\n')
    assert load(file).settings.archive.where == str(file.parent / "old")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('directory = "s3://bucket"', "the URL of a bucket belongs into `url`"),
        ('directory = "old"\nurl = "s3://bucket"', "because [archive] directory is set too"),
        ('url = "https://host/bucket"', "[archive] url: 'https://host/bucket' is not the URL of an object store"),
        ('url = "s3://b"', "is not the URL"),
        ('url = "s3://bucket/a/../b"', "is not the URL"),
        ('url = "s3://bucket//a"', "is not the URL"),
        ('url = "/mnt/archive"', "is not the URL"),
    ],
)
def test_a_wrong_place_of_the_archive_is_named(file: Path, line: str, text: str) -> None:
    file.write_text(GOOD + f"[archive]\n{line}\n")
    assert text in refusal(file)


def test_a_secret_in_the_url_of_the_archive_is_not_repeated(file: Path) -> None:
    file.write_text(GOOD + '[archive]\nurl = "s3://user:password@bucket"\n')
    assert "password" not in refusal(file)
