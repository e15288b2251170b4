"""The Spark job of the demo, to be run with ``python -m``: the code that a user would write, and that the demo kills.

It reads commands from stdin, one word a line, and writes events to stdout, one JSON object a line:

| command | event |
| --- | --- |
| (none) | ``{"event": "ready"}`` when Spark runs |
| ``write`` | ``{"event": "written"}`` when every file is in the topic |
| ``aggregate`` | ``{"event": "counted", "rows": N}`` now and then, at the end ``{"event": "delays", "rows": [...]}`` |

An error is the event ``{"event": "failed", "message": ...}``; its traceback goes to stderr, as all output of Spark. The
job ends when stdin is closed, because the process that could end it is gone then.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from typing import Any, Final

__all__ = ["main"]

SCHEMA: Final = "year INT, month INT, day INT, hour INT, dep_delay INT"
WATERMARK: Final = "31 days"
"""Two tasks read the halves of a file, in either order, so a flight may come after one that is weeks later, but never
by more than the time in one file."""
RECORDS_PER_BATCH: Final = 70_000
CORES: Final = 2
MESSAGE_CHARACTERS: Final = 2000


def write(spark: Any, cluster: str, folder: str) -> None:
    """Write the lines of all files into the topic, one file a micro-batch; continue from the checkpoint."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(os.path.join(folder, "flights"))
    query = (
        lines.selectExpr("value", "get_json_object(value, '$.carrier') AS key")
        .writeStream.format("viewstamp")
        .option("cluster", cluster)
        .option("topic", "flights")
        .option("checkpointLocation", os.path.join(folder, "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def aggregate(spark: Any, cluster: str, folder: str, say: Any) -> list[list[Any]]:
    """Read the topic as a stream and count by carrier and day, in windows of event time that a watermark closes.

    Spark has windows of days but not of months. The months are added up from the days, which is exact because these are
    sums and not means.

    Returns:
      a list for each carrier and month: carrier, year, month, flights, departed flights, the sum of their delays in
      minutes.
    """
    days: dict[tuple[str, Any], tuple[int, int, int]] = {}

    def keep(batch: Any, _: int) -> None:
        # The windows that this micro-batch has changed, each with its present values.
        days.update({(row[0], row[1]): (row[2], row[3], row[4] or 0) for row in batch.collect()})
        say("counted", rows=sum(flights for flights, _, _ in days.values()))

    records = (
        spark.readStream.format("viewstamp")
        .option("cluster", cluster)
        .option("topic", "flights")
        .option("columns", "key,value")
        .option("maxRecordsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )
    flights = records.selectExpr(
        "CAST(key AS STRING) AS carrier", f"from_json(CAST(value AS STRING), '{SCHEMA}') AS flight"
    ).selectExpr(
        "carrier",
        "make_timestamp(flight.year, flight.month, flight.day, flight.hour, 0, 0) AS time",
        "flight.dep_delay AS delay",
    )
    flights.withWatermark("time", WATERMARK).createOrReplaceTempView("flights")
    query = (
        spark.sql(
            "SELECT carrier, date(window.start), count(*), count(delay), sum(delay)"
            " FROM flights GROUP BY carrier, window(time, '1 day')"
        )
        .writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", os.path.join(folder, "checkpoint-delays"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    months: dict[tuple[str, int, int], list[int]] = {}
    for (carrier, day), counts in days.items():
        sums = months.setdefault((carrier, day.year, day.month), [0, 0, 0])
        months[carrier, day.year, day.month] = [a + b for a, b in zip(sums, counts, strict=True)]
    return [[*month, *sums] for month, sums in sorted(months.items())]


def main(cluster: str, folder: str) -> None:
    """Execute the commands from stdin, in ``folder``, with the cluster at the addresses ``cluster``."""
    # Java inherits stdout and prints to it, so it gets stderr instead.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(event: str, **fields: Any) -> None:
        print(json.dumps({"event": event, **fields}), file=events, flush=True)

    commands: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    try:
        from viewstamp.spark import session

        scratch = os.path.join(folder, "scratch")
        spark = session(
            "viewstamp demo-spark",
            cores=CORES,
            **{
                "spark.local.dir": scratch,
                "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
                # Otherwise one task would read a file of some megabytes.
                "spark.sql.files.openCostInBytes": "0",
            },
        )
        say("ready")
        while True:
            match commands.get():
                case "write":
                    write(spark, cluster, folder)
                    say("written")
                case "aggregate":
                    say("delays", rows=aggregate(spark, cluster, folder, say))
    except Exception as error:
        traceback.print_exc()
        # Spark's message continues with the stack of the JVM, so only its beginning is sent.
        say("failed", message=str(error).strip()[:MESSAGE_CHARACTERS])
        sys.exit(1)


def _listen(commands: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
