"""A standalone cluster of Spark: a master and workers in processes of their own, on 127.0.0.1 and 127.0.0.2.

Two addresses are two hosts for Spark. So it starts a second copy of a slow task, which speculation does only on another
host, and one executor can be lost while the other continues.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from viewstamp.spark import ensure_java

__all__ = ["HOSTS", "REPOSITORY", "Standalone", "make_environment", "make_wheel", "running_standalone"]

REPOSITORY: Final = Path(__file__).parents[2]
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_START_SECONDS: Final = 90
_SPARK: Final = Path(pyspark.__file__).parent


class Standalone:
    """A running master with its workers."""

    def __init__(self, master: str, processes: Sequence[subprocess.Popen[bytes]], directory: Path) -> None:
        self.master = master
        """``spark://HOST:PORT``, the address for drivers."""
        self._processes = processes
        self._directory = directory

    def executors(self) -> dict[int, str]:
        """Return the process ids of the running executors, and the host of each."""
        workers = {process.pid for process in self._processes[1:]}
        found = {}
        for pid, parent, command in _processes():
            if parent in workers and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command:
                found[pid] = command[command.index("--hostname") + 1]
        return found

    def submit(
        self,
        program: Path,
        *arguments: str,
        conf: Mapping[str, str],
        python: Path | str,
        environment: Mapping[str, str],
        py_files: Sequence[Path] = (),
        directory: Path,
    ) -> subprocess.Popen[str]:
        """Start a driver with ``spark-submit``, as a user does; its output is piped."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            **conf,
        }
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self.master]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        if py_files:
            command += ["--py-files", ",".join(map(str, py_files))]
        return subprocess.Popen(
            [*command, str(program), *arguments],
            cwd=directory,
            env=_environment(self._directory) | {"PYSPARK_PYTHON": str(python), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@contextmanager
def running_standalone(directory: Path, workers: Sequence[str] = HOSTS) -> Iterator[Standalone]:
    """Run a master on 127.0.0.1 and a worker on each of the hosts ``workers``, on free ports, until the context ends.

    A worker has one executor at a time.
    """
    ensure_java()
    with contextlib.ExitStack() as stack:
        logs = [directory / "master.log", *(directory / f"worker-{host}.log" for host in workers)]
        ports = ("--port", "0", "--webui-port", "0")
        processes = [_start(stack, logs[0], "master.Master", "--host", HOSTS[0], *ports)]
        master = _wait_for(r"Starting Spark master at (spark://\S+)", logs[0], processes[0])
        for host, log in zip(workers, logs[1:], strict=True):
            work = ("--work-dir", str(directory / f"work-{host}"), "--cores", "1", "--memory", "1g")
            processes.append(_start(stack, log, "worker.Worker", "--host", host, *ports, *work, master))
        for log, process in zip(logs[1:], processes[1:], strict=True):
            _wait_for("Successfully registered with master", log, process)
        yield Standalone(master, processes, directory)


def _start(stack: contextlib.ExitStack, log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            cwd=log.parent,
            env=_environment(log.parent),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and all processes that it has started, because executors run in sessions of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment without the packages of this checkout and without the settings of the tests' session.

    Temporary files go below ``directory``, because a killed Java does not remove its own.
    """
    left_out = ("PYTHONPATH", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    java_options = f"{kept.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={directory}"
    return kept | {
        "JDK_JAVA_OPTIONS": java_options.strip(),
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_LOCAL_HOSTNAME": "",
    }


def _wait_for(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while not (found := re.search(pattern, text := log.read_text(encoding="utf-8", errors="replace"))):
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    return found[found.lastindex or 0]


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Yield the processes of this machine: id, parent's id, command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                status = (entry / "stat").read_text(encoding="utf-8", errors="replace")
                command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                yield int(entry.name), int(status.rpartition(")")[2].split()[1]), command


def make_wheel(path: Path) -> Path:
    """Make the zip file of a wheel of this project: the packages that pyproject.toml names."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    with zipfile.ZipFile(path, "w") as archive:
        for package in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
            for file in sorted((REPOSITORY / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(REPOSITORY))
    return path


def make_environment(directory: Path, wheel: Path | None) -> Path:
    """Make a Python environment with the requirements of viewstamp, and with viewstamp itself if a wheel is given.

    The requirements come from the environment of the tests, by a path. This checkout, which is also installed there by
    a path, is not included, because Python follows such paths in one step only.
    """
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(str(_SPARK.parent) + "\n", encoding="utf-8")
    if wheel is not None:
        shutil.unpack_archive(wheel, packages, "zip")
    return directory / "bin" / "python"
