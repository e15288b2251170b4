"""Every option, its allowed values, and the error for any other value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from viewstamp.errors import ConfigError
from viewstamp.host.tls import TlsFiles
from viewstamp.spark.options import (
    _SINK,
    _SOURCE,
    _WAL,
    COLUMNS,
    TLS_VARIABLES,
    SinkOptions,
    SourceOptions,
    WalSourceOptions,
)

CLUSTER = "127.0.0.1:7001,127.0.0.1:7002"
NAMED = {"cluster": CLUSTER, "topic": "flights"}


def sink(*, streaming: bool = True, **options: str) -> SinkOptions:
    return SinkOptions.parse({**NAMED, **options}, streaming=streaming)


def source(*, streaming: bool = False, **options: str) -> SourceOptions:
    return SourceOptions.parse({**NAMED, **options}, streaming=streaming)


def test_the_names_are_these() -> None:
    """The names are fixed, because jobs that run for years have them in their code."""
    assert sink(sinkId="s", sinkReset="true", format="json") == SinkOptions(
        cluster=CLUSTER, topic="flights", sink_id="s", sink_reset=True, format="json"
    )
    assert sink(streaming=False, sinkId="s", batchId="7").batch_id == 7
    assert sink(streaming=False, txnId="t").txn_id == "t"
    assert source(
        startingPosition="5", endingPosition="9", columns="value", failOnDataLoss="false", pushFilters="true"
    ) == (
        SourceOptions(
            cluster=CLUSTER,
            topics=("flights",),
            columns=("value",),
            starting_position={"flights": 5},
            ending_position={"flights": 9},
            fail_on_data_loss=False,
            push_filters=True,
        )
    )
    limits = source(streaming=True, maxRecordsPerTrigger="10", maxBytesPerTrigger="20", startingTimestamp="0")
    assert (limits.max_records_per_trigger, limits.max_bytes_per_trigger, limits.starting_timestamp) == (10, 20, 0)
    tasks = source(minPartitions="100", maxRecordsPerPartition="1000", connectSeconds="0")
    assert (tasks.min_partitions, tasks.max_records_per_partition, tasks.connect_seconds) == (100, 1000, 0)
    assert sink(connectSeconds="60").connect_seconds == 60


@pytest.mark.parametrize(
    ("section", "options"), [("Writing", _SINK), ("Reading", _SOURCE), ("Offline", _WAL.keys() - {"path", "paths"})]
)
def test_the_documents_name_each_of_them_and_no_other(section: str, options: Mapping[str, object]) -> None:
    """Each table of options in docs/spark.md lists exactly the options that the code accepts.

    ``path`` and ``paths`` of ``viewstamp-wal`` are not in its table, because users pass them to ``load``.
    """
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    (table,) = re.findall(rf"^## {section}$.*?^\| option \|[^\n]*\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)` ", table, re.MULTILINE)) == set(options)


def test_what_is_not_given_has_its_default() -> None:
    assert SinkOptions.parse({"cluster": CLUSTER}, streaming=True) == SinkOptions(cluster=CLUSTER)
    assert source() == SourceOptions(
        cluster=CLUSTER,
        topics=("flights",),
        columns=COLUMNS,
        starting_position={"flights": "earliest"},
        ending_position={"flights": "latest"},
    )
    assert WalSourceOptions.parse({"path": "a"}) == WalSourceOptions(paths=("a",))


def test_capitals_make_no_difference_as_spark_makes_none() -> None:
    assert source(STARTINGPOSITION="5") == source(startingposition="5") == source(startingPosition="5")


def test_what_spark_adds_is_not_ours_to_refuse() -> None:
    assert sink(checkpointLocation="/somewhere", queryName="flights") == sink()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startPosition", "startingPosition"),
        ("startingoffset", "startingPosition"),
        ("maxRowsPerTrigger", "maxRecordsPerTrigger"),
        ("topics", "topic"),
        ("failOnDataLos", "failOnDataLoss"),
        ("starting", "startingPosition"),
    ],
)
def test_an_unknown_option_names_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=given) as raised:
        source(**{given: "1"})
    assert raised.value.remedy.startswith(f"did you mean {meant}? there are cluster, ")


def test_a_path_is_no_topic() -> None:
    """The arguments of save("flights") and start("flights")."""
    with pytest.raises(ConfigError, match="the sink has no path, but 'flights' is given") as raised:
        sink(path="flights")
    assert "topic" in raised.value.remedy


def test_an_option_like_none_gets_the_list() -> None:
    with pytest.raises(ConfigError, match="the sink has no option zzz") as raised:
        sink(zzz="1")
    assert (
        raised.value.remedy
        == "there are cluster, tokenFile, topic, sinkId, sinkReset, txnId, txnKeepDays, batchId, format,"
        " connectSeconds, tlsAuthority, tlsCertificate, tlsKey"
    )


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("cluster", "nowhere", "write host:port"),
        ("cluster", "", "comma"),
        ("topic", "a,,b", "comma"),
        ("topic", "a,a", "only once"),
        ("columns", "valu", "did you mean value?"),
        ("columns", "value,value", "only once"),
        ("startingPosition", "0", "a position from 1 on"),
        ("startingPosition", "-1", "a position from 1 on"),
        ("startingPosition", "newest", "earliest, latest"),
        ("startingPosition", '{"flights": true}', "earliest, latest"),
        ("startingPosition", '{"flights": 1', "JSON"),
        ("endingPosition", "1.5", "a position from 1 on"),
        ("startingTimestamp", "2013-07-01", "with a time zone"),
        ("startingTimestamp", "yesterday", "ISO 8601"),
        ("minPartitions", "0", "a whole number from 1 on"),
        ("minPartitions", "100001", "from 1 to 100000"),
        ("maxRecordsPerPartition", "0", "a whole number from 1 on"),
        ("connectSeconds", "1.5", "a whole number from 0 on"),
        ("topicPattern", "a(", "a regular expression of Python"),
        ("maxTriggerDelay", "90", "a number and a unit"),
        ("failOnDataLoss", "no", "true or false"),
        ("pushFilters", "1", "true or false"),
    ],
)
def test_a_wrong_value_of_a_reader_is_named_with_its_remedy(option: str, value: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source(**{option: value})
    assert value in raised.value.message
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("topic", " ", "write a name"),
        ("sinkReset", "yes", "true or false"),
        ("batchId", "-1", "a whole number from 0 on"),
        ("batchId", "x", "a whole number from 0 on"),
        ("txnKeepDays", "36501", "from 0, which means for ever, to 36500"),
        ("format", "avro", "json, msgpack or rows"),
    ],
)
def test_a_wrong_value_of_a_writer_is_named_with_its_remedy(option: str, value: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"option {option} is {value!r}") as raised:
        sink(streaming=False, **{option: value})
    assert remedy in raised.value.remedy


@pytest.mark.parametrize("option", ["token", "Password", "tokenFile", "tlsKey", "path"])
def test_a_secret_in_an_option_is_refused_and_not_shown(option: str) -> None:
    secret = "7f" * 32
    is_key = option == "tlsKey"
    value = f"-----BEGIN PRIVATE KEY-----\n{secret}" if is_key else f"vst_0123456789ab_{secret}"
    with pytest.raises(ConfigError) as raised:
        SourceOptions.parse({**NAMED, option: value}, streaming=False)
    assert secret not in f"{raised.value} {raised.value.remedy}"
    assert "file" in raised.value.remedy or option == "path"


@pytest.mark.parametrize("option", ["maxRecordsPerTrigger", "maxBytesPerTrigger"])
def test_a_limit_of_nothing_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        source(streaming=True, **{option: "0"})


@pytest.mark.parametrize(
    ("streaming", "options"),
    [
        (True, {"endingPosition": "9"}),
        (True, {"endingTimestamp": "0"}),
        (True, {"pushFilters": "true"}),
        (False, {"maxRecordsPerTrigger": "9"}),
        (False, {"maxBytesPerTrigger": "9"}),
        (False, {"startingPosition": "1", "startingTimestamp": "0"}),
        (False, {"startingPosition": "9", "endingPosition": "8"}),
    ],
)
def test_what_does_nothing_for_a_reader_is_refused(streaming: bool, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))) as raised:
        source(streaming=streaming, **options)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("streaming", "options"),
    [
        (True, {"txnId": "t"}),
        (False, {"txnKeepDays": "1"}),
        (True, {"batchId": "1"}),
        (True, {"sinkReset": "true"}),
        (False, {"sinkReset": "true", "txnId": "t"}),
        (False, {"sinkId": "s"}),
        (False, {"batchId": "1"}),
        (False, {"txnId": "t", "sinkId": "s", "batchId": "1"}),
    ],
)
def test_what_does_nothing_for_a_writer_is_refused(streaming: bool, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))) as raised:
        sink(streaming=streaming, **options)
    assert raised.value.remedy


def test_a_reader_names_a_topic() -> None:
    with pytest.raises(ConfigError, match="no topic is named"):
        SourceOptions.parse({"cluster": CLUSTER}, streaming=False)


def test_several_topics_begin_where_each_is_told_to() -> None:
    two = source(topic="flights, delays", startingPosition='{"flights": 7, "delays": "latest"}')
    assert two.topics == ("flights", "delays")
    assert two.starting_position == {"flights": 7, "delays": "latest"}
    assert two.ending_position == {"flights": "latest", "delays": "latest"}


@pytest.mark.parametrize("bounds", ['{"flights": 7}', '{"flights": 7, "delay": 1}', "{}"])
def test_bounds_that_name_other_topics_are_refused(bounds: str) -> None:
    with pytest.raises(ConfigError, match="topic names flights, delays"):
        source(topic="flights,delays", startingPosition=bounds)


@pytest.mark.parametrize("text", ["2013-07-01T12:00:00Z", "2013-07-01T14:00:00.000000+02:00", "1372680000000000"])
def test_a_time_is_iso_8601_or_microseconds(text: str) -> None:
    assert source(startingTimestamp=text).starting_timestamp == 1_372_680_000_000_000


def test_the_cluster_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIEWSTAMP_CLUSTER", "127.0.0.1:7009")
    assert SinkOptions.parse({}, streaming=True).cluster == "127.0.0.1:7009"
    assert sink().cluster == CLUSTER, "the option goes before"
    monkeypatch.delenv("VIEWSTAMP_CLUSTER")
    with pytest.raises(ConfigError, match="no cluster is named") as raised:
        SinkOptions.parse({}, streaming=True)
    assert "VIEWSTAMP_CLUSTER" in raised.value.remedy


def test_the_files_of_tls_are_options_or_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    files = TlsFiles(authority="/a.pem", certificate="/c.pem", key="/c.key")
    options = {"tlsAuthority": "/a.pem", "tlsCertificate": "/c.pem", "tlsKey": "/c.key"}
    assert sink(**options).tls == source(**options).tls == files
    assert sink().tls is None
    with pytest.raises(ConfigError, match="missing: tlsCertificate, tlsKey"):
        source(tlsAuthority="/a.pem")
    for name, file in zip(TLS_VARIABLES, options.values(), strict=True):
        monkeypatch.setenv(name, file)
    assert sink().tls == source().tls == files
    table = SourceOptions.table_of({"cluster": CLUSTER, "topic": "orders", **options})
    assert SinkOptions.parse({}, streaming=False, table=table).tls == files


def test_directories_are_what_load_was_given() -> None:
    assert WalSourceOptions.parse({"path": "/data/n1"}).paths == ("/data/n1",)
    assert WalSourceOptions.parse({"paths": '["/data/n1","/data/n2"]', "topic": "a,b"}) == WalSourceOptions(
        paths=("/data/n1", "/data/n2"), topics=("a", "b")
    )
    with pytest.raises(ConfigError, match="no data directory"):
        WalSourceOptions.parse({})


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("1795360189804", "as milliseconds it is 2026-11-22T15:09:49.804+00:00, so write 1795360189804000"),
        ("1795360189", "as seconds it is 2026-11-22T15:09:49.000+00:00, so write 1795360189000000"),
        ("1795360189804828123", "as nanoseconds it is 2026-11-22T15:09:49.804+00:00, so write 1795360189804828"),
        ("1795360189804", "as microseconds it is 1970-01-21T18:42:40.189+00:00"),
        ("1795360189804828123", "as microseconds it is after the year 9999"),
        ("12", "as microseconds it is 1970-01-01T00:00:00.000+00:00"),
    ],
)
def test_a_time_in_another_unit_is_refused_with_its_value_in_each(value: str, remedy: str) -> None:
    """Kafka's startingTimestamp is in milliseconds. As microseconds it is in 1970, so all records would be read."""
    with pytest.raises(ConfigError, match=f"option startingTimestamp is '{value}'") as raised:
        source(startingTimestamp=value)
    assert remedy in raised.value.remedy


def test_kafkas_names_are_taken_where_they_mean_the_same() -> None:
    kafkas = {
        "kafka.bootstrap.servers": CLUSTER,
        "subscribe": "flights",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "7",
    }
    ours = {**NAMED, "startingPosition": "latest", "maxRecordsPerTrigger": "7"}
    assert SourceOptions.parse(kafkas, streaming=True) == SourceOptions.parse(ours, streaming=True)
    assert source(endingOffsets="latest") == source()
    assert SinkOptions.parse({"kafka.bootstrap.servers": CLUSTER, "topic": "flights"}, streaming=True) == sink()


def test_two_names_of_one_option_have_to_agree() -> None:
    assert source(subscribe="flights") == source()
    with pytest.raises(ConfigError, match="options topic and subscribe mean the same here, but differ"):
        source(subscribe="delays")


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("startingOffsets", '{"flights":{"0":23}}', "write startingPosition"),
        ("startingOffsetsByTimestamp", "{}", "write startingTimestamp"),
        ("endingOffsetsByTimestamp", "{}", "write endingTimestamp"),
        ("assign", "{}", "name the topics in option topic"),
        ("kafka.group.id", "g", "there are no consumer groups"),
        ("kafka.client.id", "c", "no Kafka client that reads it"),
        ("kafka.security.protocol", "SSL", "tlsAuthority, tlsCertificate, tlsKey"),
        ("kafka.sasl.jaas.config", "secret", "in tokenFile"),
    ],
)
def test_kafkas_other_names_are_refused_with_what_to_write_instead(name: str, value: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)) as raised:
        source(**{name: value})
    assert remedy in raised.value.remedy


CREATED = {
    "option.cluster": CLUSTER,
    "cluster": CLUSTER,
    "option.topic": "flights",
    "topic": "flights",
    "option.serialization.format": "1",
    "serialization.format": "1",
    "location": "file:/warehouse/flights",
    "path": "file:/warehouse/flights",
    "provider": "viewstamp",
    "owner": "root",
    "comment": "all of them",
}
"""The options that Spark passes for CREATE TABLE, in lower case."""


def test_of_a_tables_properties_the_options_count() -> None:
    assert SourceOptions.parse(CREATED, streaming=False) == source()
    assert SourceOptions.table_of({**CREATED, "option.startingposition": "3"}) == {**NAMED, "startingPosition": "3"}
    with pytest.raises(ConfigError, match="no option startposition"):
        SourceOptions.table_of({**CREATED, "option.startposition": "3"})
    with pytest.raises(ConfigError, match="no topic is named"):
        SourceOptions.table_of({"provider": "viewstamp", "option.cluster": CLUSTER, "topic": "a property"})


def test_options_of_a_query_go_before_those_of_its_table() -> None:
    table = {**NAMED, "startingPosition": "3"}
    assert SourceOptions.parse({}, streaming=False, table=table) == source(startingPosition="3")
    assert SourceOptions.parse({"startingposition": "5"}, streaming=False, table=table) == source(startingPosition="5")


def test_a_write_to_a_table_takes_its_address_from_it() -> None:
    table = {**NAMED, "startingPosition": "3"}
    written = SinkOptions.parse({"txnid": "t"}, streaming=False, table=table)
    assert (written.cluster, written.topic, written.txn_id) == (CLUSTER, "flights", "t")
    assert written.filled_in == ("position", "term", "index", "timestamp", "stream", "topic")
    several = SinkOptions.parse({}, streaming=False, table={**table, "topic": "flights,delays"})
    assert (several.topic, several.filled_in) == ("", ("position", "term", "index", "timestamp", "stream"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a", "topicPattern": "a.*"}, "topicPattern and topic are both given"),
        ({"topicPattern": "a.*", "rows": "true"}, "topicPattern and rows are both given"),
        ({"topicPattern": "a.*", "startingPosition": '{"a": 1}'}, "startingPosition names topics"),
        ({"topic": "a", "maxTriggerDelay": "90s"}, "maxTriggerDelay is given without minRecordsPerTrigger"),
        (
            {"topic": "a", "minRecordsPerTrigger": "9", "maxRecordsPerTrigger": "8"},
            "minRecordsPerTrigger is 9, and maxRecordsPerTrigger 8",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOptions.parse({"cluster": "127.0.0.1:1", **options}, streaming=True)
