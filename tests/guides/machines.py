"""Types the commands of a guide on several machines, for which directories and loopback addresses stand.

A prompt names the machine: ``db2$ command``. Machine dbN has the address 127.0.0.(N+1), a home directory, and
directories of its own for /etc, /opt and /var; ``admin`` has no node. ``export`` stays in force there. The node,
its settings, its disk, its port and its signals are real. Commands that need root or another machine are replaced by
stand-ins, which do the part that matters here: ``systemctl`` starts the ``ExecStart=`` of the guide's unit, waits for
``READY=1`` as systemd does, and stops with SIGTERM.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.guides.guide import blocks, pattern

__all__ = ["ROOT", "Machines", "unit_in"]

ROOT = Path(__file__).parents[2]
SETTINGS_PORT, HEALTH_PORT = 7001, 7101
"""The ports in the guide; free ones take their places."""

SYSTEMCTL = (
    f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
"""
    + """
import os, re, shlex, signal, socket, subprocess, time
from viewstamp.local.process import start_mark
root, words = os.environ["MACHINE"], [each for each in sys.argv[1:] if not each.startswith("-")]
verb, unit = words[0], words[-1]
template, _, name = unit.partition("@")
is_now = verb in ("start", "stop", "restart") or "--now" in sys.argv
file, log = f"{root}/run/{name}.pid", f"{root}/{name}.log"

def stop():
    if os.path.exists(file):
        pid = int(open(file).read())
        mark = start_mark(pid)
        if mark is not None:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 60
        while mark is not None and start_mark(pid) == mark:
            assert time.monotonic() < until, f"{unit} does not stop"
            time.sleep(0.02)
        os.remove(file)

def start():
    text = open(f"{root}/etc/systemd/system/{template}@.service").read()
    assert "Type=notify" in text
    command = re.search("^ExecStart=(.*)$", text, re.M)[1].replace("%i", name)
    command = [root + word if word.startswith(("/opt/", "/etc/")) else word for word in shlex.split(command)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{root}/run/notify")
        manager.settimeout(60)
        environment = dict(
            os.environ,
            NOTIFY_SOCKET=f"{root}/run/notify",
            VIEWSTAMP_NODE__DATA_DIR=f"{root}/var/lib/viewstamp/{name}",
            VIEWSTAMP_NODE__HEALTH=os.environ["HEALTH"],
        )
        with open(log, "ab") as stream:
            process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)
        open(file, "w").write(str(process.pid))
        try:
            while b"READY=1" not in manager.recv(4096).split(b"\\n"):
                pass
        except TimeoutError:
            sys.exit(f"{unit} did not become ready\\n{open(log).read()}")
        finally:
            os.remove(f"{root}/run/notify")

if is_now and verb in ("stop", "restart", "disable"):
    stop()
if is_now and verb in ("start", "restart", "enable"):
    start()
"""
)

SCP = """
import os, shutil, sys

def place(text):
    address, colon, path = text.partition(":")
    if not colon:
        return text
    assert path.startswith("/") or path in ("", "."), text
    machine = os.path.join(os.environ["MACHINES"], "db" + str(int(address.rpartition(".")[2]) - 1))
    return machine + path if path.startswith("/") else os.path.join(machine, "home", path)

*sources, target = map(place, [each for each in sys.argv[1:] if not each.startswith("-")])
for source in sources:
    shutil.copy(source, target)
"""

CURL = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[-1], timeout=5).read().decode(), end="")
except urllib.error.HTTPError as error:
    print(error.read().decode(), end="")
"""

VENV = """\
mkdir -p "$3/bin"
cat > "$3/bin/viewstamp" <<'END'
#!/bin/sh
PYTHONPATH="$(cat "$MACHINE/release")" exec {python} -m viewstamp "$@"
END
cat > "$3/bin/pip" <<'END'
#!/bin/sh
case "$*" in
*--upgrade*) echo {newer} ;;
*) echo {older} ;;
esac > "$MACHINE/release"
END
chmod +x "$3/bin/viewstamp" "$3/bin/pip"
"""

INSTALL = """\
for word; do
    shift
    case "$previous" in -o | -g) previous=; continue ;; esac
    previous="$word"
    case "$word" in -o | -g) ;; *) set -- "$@" "$word" ;; esac
done
PATH="${PATH#*:}" exec install "$@"
"""


class Machines:
    """The machines of one guide.

    Args:
      directory: for all files.
      older: the sources that ``pip install`` installs; ``pip install --upgrade`` installs this tree.
    """

    def __init__(self, directory: Path, older: Path = ROOT) -> None:
        self._directory = directory
        self._ports = {SETTINGS_PORT: free_port(), HEALTH_PORT: free_port()}
        self._unit = ""
        self._exported: dict[str, dict[str, str]] = {}
        bin_directory = directory / "bin"
        bin_directory.mkdir()
        python = sys.executable
        scripts = {
            "sudo": 'exec "$@"',
            "useradd": "",
            "ufw": "",
            "install": INSTALL,
            "python3": VENV.format(python=python, older=older, newer=ROOT),
        }
        for name, text in {"systemctl": SYSTEMCTL, "scp": SCP, "curl": CURL}.items():
            (directory / f"{name}.py").write_text(text, encoding="utf-8")
            scripts[name] = f'exec {python} -I "{directory}/{name}.py" "$@"'
        for name, text in scripts.items():
            (bin_directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (bin_directory / name).chmod(0o755)

    def follow(self, text: str) -> int:
        """Type the commands of a guide, and compare their output; return their number.

        Raises:
          AssertionError: an output differs; the message shows both.
        """
        typed = 0
        self._unit = unit_in(text)
        for language, block in blocks(text):
            if language != "console":
                continue
            for machine, command, expected in terminals(block):
                printed = self.type(machine, command)
                assert re.fullmatch(pattern(expected), printed), (
                    f"{machine}$ {command}\n{printed}\n--- expected:\n{expected}\n{self.logs()}"
                )
                typed += 1
        return typed

    def type(self, machine: str, command: str) -> str:
        """Run a command on a machine; return its output, in the guide's names."""
        root = self._root(machine)
        number = machine.removeprefix("db") if machine != "admin" else "0"
        exported = self._exported.setdefault(machine, {})
        command = re.sub(r"(?<![:\w])(/opt/viewstamp|/etc/viewstamp|/etc/systemd/system)", rf"{root}\1", command)
        command = re.sub(r"db(\d+)\.example\.net", lambda found: address_of(found[1]), command)
        command = command.replace("127.0.0.1", address_of(number))
        for shown, port in self._ports.items():
            command = command.replace(f":{shown}", f":{port}")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VIEWSTAMP_")}
        environment |= {
            "MACHINE": str(root),
            "MACHINES": str(self._directory),
            "HEALTH": f"{address_of(number)}:{self._ports[HEALTH_PORT]}",
            "PATH": f"{self._directory}/bin{os.pathsep}{root}/opt/viewstamp/bin{os.pathsep}{os.environ['PATH']}",
        }
        environment |= exported
        if command.startswith("export "):
            names = re.findall(r"(\w+)=", command)
            script = f"{command} && printenv {' '.join(names)}"
            said = subprocess.run(
                ["sh", "-c", script], cwd=root / "home", env=environment, capture_output=True, check=True
            )
            exported.update(zip(names, said.stdout.decode().splitlines(), strict=True))
            return ""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=root / "home",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        printed = done.stdout.replace(str(root), "")
        for shown, port in self._ports.items():
            printed = re.sub(rf"(?<=:){port}\b", str(shown), printed)
        printed = re.sub(r"127\.0\.0\.(\d+)", lambda found: f"db{int(found[1]) - 1}.example.net", printed)
        assert done.returncode == 0, f"{machine}$ {command} ended with {done.returncode}\n{printed}\n{self.logs()}"
        return printed

    def logs(self) -> str:
        """Return the last lines of the nodes' logs, for the message of a failed test."""
        lines = [
            (path, path.read_text(errors="replace").splitlines()[-5:]) for path in self._directory.glob("db*/*.log")
        ]
        return "\n".join(f"{path.name}: {line}" for path, last in lines for line in last)

    def kill(self) -> None:
        """End every node that still runs."""
        for path in self._directory.glob("db*/run/*.pid"):
            with suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)

    def _root(self, machine: str) -> Path:
        root = self._directory / machine
        if not root.exists():
            for name in ("home", "run", "etc/systemd/system", "var/lib/viewstamp"):
                (root / name).mkdir(parents=True)
            (root / "var/lib/viewstamp").chmod(stat.S_IRWXU)
            (root / "home" / "viewstamp@.service").write_text(self._unit, encoding="utf-8")
        return root


def unit_in(text: str) -> str:
    """Return the unit for systemd that a guide shows."""
    [unit] = [block for language, block in blocks(text) if language == "ini"]
    return unit


def terminals(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (machine, command, output) of a terminal."""
    parts = re.split(r"^(db\d+|admin)\$ ", text, flags=re.MULTILINE)[1:]
    for machine, part in zip(parts[::2], parts[1::2], strict=True):
        command, _, printed = part.partition("\n")
        yield machine, command, printed.rstrip("\n")


def address_of(number: str) -> str:
    return f"127.0.0.{int(number) + 1}"


def free_port() -> int:
    """Return a port that is free on all addresses now, below those of outgoing connections."""
    from viewstamp.config import free_addresses

    while True:
        port = int(free_addresses(1)[0].rpartition(":")[2])
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
            return port
