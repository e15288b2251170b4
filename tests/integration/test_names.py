"""Members may be names: one whose name gets another address is reached there, and the membership stays as it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def has_namespaces() -> bool:
    """Return whether this user may make a mount namespace, in which /etc/hosts can be replaced."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="this user may make no mount namespace (unshare --user --mount)")
def test_member_whose_name_gets_another_address_is_reached_there(tmp_path: Path) -> None:
    (tmp_path / "hosts").touch()
    program = f'"{sys.executable}" -m tests.integration.moved_name "{tmp_path}"'
    script = f'mount --bind "{tmp_path}/hosts" /etc/hosts && exec {program}'
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
