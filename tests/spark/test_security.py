"""Jobs on a cluster with TLS and tokens: each way to read and write, secrets that stay secret, and their renewal."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.cluster import SecuredCluster
from tests.spark.jobs import finish, put_file, read_files, save, start
from viewstamp.config.certificates import make_certificates
from viewstamp.errors import AccessDeniedError
from viewstamp.spark.blocking_client import blocking_client

pytestmark = pytest.mark.slow

_numbers = itertools.count(1)


@pytest.fixture
def topic(secured: SecuredCluster) -> str:
    name = f"topic-{next(_numbers)}"
    secured.create_topic(name)
    return name


@pytest.fixture
def give(secured: SecuredCluster, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Create a token with these roles, in a file; return the options of a job that uses it."""

    def give(name: str, *roles: str) -> dict[str, str]:
        file = tmp_path / f"{name}.token"
        file.write_text(secured.create_token(f"{name}-{next(_numbers)}", *roles), encoding="utf-8")
        return {**secured.files(), "tokenFile": str(file)}

    return give


Give = Callable[..., dict[str, str]]


def failure(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def secrets_of(options: dict[str, str]) -> list[str]:
    """Return the secret parts of the token and of the private key."""
    key = Path(options["tlsKey"]).read_text(encoding="utf-8").splitlines()
    return [Path(options["tokenFile"]).read_text(encoding="utf-8").strip().rpartition("_")[2], *key[1:-1]]


def run_stream(spark: SparkSession, files: Path, checkpoint: Path, **options: str) -> StreamingQuery:
    """Start a query that goes on when new files come."""
    writer = read_files(spark, files).writeStream.format("viewstamp").options(**options)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def test_jobs_write_with_one_token_and_read_with_another(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give, tmp_path: Path
) -> None:
    """As batches and as streams. The token of each has only the roles that docs/spark.md names."""
    writer = give("writer", f"append:{topic}", "append:once", "append:etl")
    reader = give("reader", f"read:{topic}")
    cluster = secured.addresses
    save(spark.sql("SELECT 'batch' AS value"), cluster, topic=topic, txnId="once", **writer)
    put_file(tmp_path / "files", 0, ["stream"])
    finish(start(read_files(spark, tmp_path / "files"), tmp_path / "c", cluster, topic=topic, sinkId="etl", **writer))
    assert secured.values(topic) == [b"batch", b"stream"]

    read = spark.read.format("viewstamp").options(cluster=cluster, topic=topic, **reader).load()
    assert sorted(row.value for row in read.collect()) == [b"batch", b"stream"]
    stream = spark.readStream.format("viewstamp").options(cluster=cluster, topic=topic, **reader).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "r"))
    finish(running := query.trigger(availableNow=True).start())
    assert running.lastProgress["numInputRows"] == 2


def test_no_secret_is_shown_or_stored(
    spark: SparkSession, event_log: Path, secured: SecuredCluster, topic: str, give: Give, tmp_path: Path
) -> None:
    """In plans, tables, errors, checkpoints, and the log from which Spark's user interface is made."""
    reader = give("reader", f"read:{topic}")
    options = {"cluster": secured.addresses, "topic": topic, **reader}
    stream = spark.readStream.format("viewstamp").options(**options).load().writeStream.format("noop")
    finish(running := stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start())

    name = f"secured_{next(_numbers)}"
    given = ", ".join(f"{key} '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TABLE {name} USING viewstamp OPTIONS ({given})")
    try:
        read = spark.table(name)
        assert read.collect() == []
        text = failure(lambda: spark.sql(f"INSERT INTO {name} (value) VALUES (X'76')"))
        assert "AccessDeniedError" in text
        assert "give txnId, or the role append:write-*" in text
        shown = [text, *(str(row) for row in spark.sql(f"DESCRIBE EXTENDED {name}").collect())]
    finally:
        spark.sql(f"DROP TABLE {name}")
    shown += [str(read._jdf.queryExecution()), running._jsq.explainInternal(True), str(running.lastProgress)]
    kept = [file.read_text(encoding="utf-8", errors="replace") for file in tmp_path.rglob("*/*") if file.is_file()]
    events = [file.read_text(encoding="utf-8", errors="replace") for file in event_log.rglob("*") if file.is_file()]
    assert any(str(running.id) in each for each in events), "the log of events is another one"
    for secret in secrets_of(reader):
        assert not any(secret in each for each in [*shown, *kept, *events])


def test_a_token_without_a_right_stages_nothing(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give
) -> None:
    rows = spark.sql("SELECT 'v' AS value")
    cases = [
        ("no-sink", [f"append:{topic}"], "before any task"),
        ("no-topic", ["append:other-topic", "append:mine"], "before any task"),
        ("reads", [f"read:{topic}", "append:mine"], "in the task"),
    ]
    for name, roles, when in cases:
        options = give(name, *roles)
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        text = failure(partial(save, rows, secured.addresses, topic=topic, txnId="mine", **options))
        assert "AccessDeniedError" in text, name
        assert ("lacks the right append on" in text) == (name != "no-topic")
        assert not any(secret in text for secret in secrets_of(options))
        ran = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) - jobs
        assert bool(ran) == (when == "in the task"), name
    assert secured.values(topic) == []
    left = secured.run(lambda client: client.list_sinks())
    assert [(sink.bytes, sink.attempts) for sink in left] == [(0, 0)] * len(left)


def test_a_write_without_a_name_leaves_no_sink_although_its_token_cannot_forget_one(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give
) -> None:
    """Only an administrator may forget a sink. So the cluster forgets this one after a day."""
    save(
        spark.sql("SELECT 'v' AS value"),
        secured.addresses,
        topic=topic,
        **give("any", f"append:{topic}", "append:write-*"),
    )
    assert secured.values(topic) == [b"v"]
    left = [sink for sink in secured.run(lambda client: client.list_sinks()) if sink.name.startswith("write-")]
    assert [(sink.attempts, sink.forget_seconds) for sink in left] == [(0, 86_400.0)]


def test_a_stream_continues_over_other_certificates_and_another_token(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give, tmp_path: Path
) -> None:
    """The workers of Spark live as long as the application, and keep their connections over its queries."""
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    sink = f"sink-of-{topic}"
    options = {**give("stream", f"append:{topic}", f"append:{sink}"), "cluster": secured.addresses}
    expected = [b"0", b"1"]

    put_file(files, 0, ["0"])
    query = run_stream(spark, files, checkpoint, topic=topic, sinkId=sink, **options)
    query.processAllAvailable()
    secured.replace_authority()
    put_file(files, 1, ["1"])
    query.processAllAvailable()
    assert secured.values(topic) == expected

    secured.run(
        lambda client: client.revoke_token(Path(options["tokenFile"]).read_text(encoding="utf-8").split("_")[1])
    )
    put_file(files, 2, ["2"])
    text = failure(query.processAllAvailable)
    assert "AccessDeniedError" in text
    assert "revoked" in text
    assert not any(secret in text for secret in secrets_of(options))
    assert secured.values(topic) == expected

    options |= give("stream", f"append:{topic}", f"append:{sink}")
    query = run_stream(spark, files, checkpoint, topic=topic, sinkId=sink, **options)
    query.processAllAvailable()
    query.stop()
    assert secured.values(topic) == [*expected, b"2"]
    described = secured.run(lambda client: client.describe_sink(sink))
    assert (described.batch, described.attempts, described.bytes) == (2, 0, 0)


def test_files_that_spark_sends_are_named_without_a_directory(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give, tmp_path: Path
) -> None:
    """Also in the process that plans a stream, to which Spark names another directory of files."""
    options = give("sent", f"append:{topic}", "append:sent", f"read:{topic}")
    for file in options.values():
        spark.sparkContext.addFile(file)
    names = {option: Path(file).name for option, file in options.items()}
    save(spark.sql("SELECT 'v' AS value"), secured.addresses, topic=topic, txnId="sent", **names)
    assert spark.read.format("viewstamp").options(cluster=secured.addresses, topic=topic, **names).load().count() == 1
    stream = spark.readStream.format("viewstamp").options(cluster=secured.addresses, topic=topic, **names).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(running := query.trigger(availableNow=True).start())
    assert running.lastProgress["numInputRows"] == 1


def test_wrong_certificates_fail_before_any_task(
    spark: SparkSession, secured: SecuredCluster, topic: str, give: Give, tmp_path: Path
) -> None:
    right = give("right", f"read:{topic}")

    def read(**options: str) -> Callable[[], object]:
        reader = spark.read.format("viewstamp").options(cluster=secured.addresses, topic=topic, **options)
        return lambda: reader.load().collect()

    (expired,) = make_certificates(str(secured.root), clients=["expired"], days=0)[-1:]
    late = {"tlsCertificate": expired.tls.files.certificate, "tlsKey": expired.tls.files.key}
    assert "has expired: it is valid from" in failure(read(**{**right, **late}))
    gone = {"tlsKey": str(tmp_path / "gone.key")}
    assert f"cannot read {tmp_path / 'gone.key'}" in failure(read(**{**right, **gone}))
    assert "of the three files of TLS these are missing: tlsKey" in failure(
        read(**{name: value for name, value in right.items() if name != "tlsKey"})
    )
    shutil.copy(right["tokenFile"], tmp_path / "empty.token")
    Path(tmp_path / "empty.token").write_text("", encoding="utf-8")
    assert f"{tmp_path / 'empty.token'}: " in failure(read(**{**right, "tokenFile": str(tmp_path / "empty.token")}))


def test_a_process_uses_the_token_that_is_in_the_file_now(secured: SecuredCluster, topic: str, give: Give) -> None:
    options = give("kept", f"append:{topic}")
    file = Path(options["tokenFile"])

    def append(value: bytes) -> None:
        link = blocking_client(secured.addresses, secured.tls, str(file))
        link.run(link.client.append, topic, value)

    append(b"0")
    secured.revoke(str(file))
    with pytest.raises(AccessDeniedError):
        append(b"revoked")
    file.write_text("", encoding="utf-8")
    with pytest.raises(AccessDeniedError):  # Not an error about the file, which is being replaced.
        append(b"half written")
    file.unlink()
    give("kept", f"append:{topic}")
    append(b"1")
    assert secured.values(topic) == [b"0", b"1"]
