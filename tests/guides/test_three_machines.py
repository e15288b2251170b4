"""The guide for three machines is followed to the letter, with 127.0.0.2 to 127.0.0.5 for its machines."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.machines import ROOT, Machines, unit_in

pytestmark = pytest.mark.timeout(600)  # A page starts up to a hundred processes.

PAGE = ROOT / "docs" / "three-machines.md"
UNIT = unit_in(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    try:
        yield found
    finally:
        found.kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and /proc")
def test_the_guide_works_as_shown(machines: Machines) -> None:
    """Install, start, upgrade, replace a machine, remove one."""
    assert machines.follow(PAGE.read_text(encoding="utf-8")) > 30


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "viewstamp@.service"
    unit.write_text(UNIT.replace("/opt/viewstamp/bin/viewstamp", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "viewstamp@n1.service")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "viewstamp@" in line]
    assert (done.returncode, said) == (0, [])


def test_exit_codes_that_need_a_person_are_not_restarted() -> None:
    from viewstamp.errors import CorruptionError, StorageError, UnavailableError

    [codes] = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE)
    assert [int(code) for code in codes.split()] == [
        StorageError.exit_code,
        CorruptionError.exit_code,
    ]
    assert str(UnavailableError.exit_code) not in codes.split()
