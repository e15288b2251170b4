"""Without trio, the ImportError of ``viewstamp.trio`` names the extra to install."""

from __future__ import annotations

import subprocess
import sys


def test_the_import_error_names_the_extra() -> None:
    program = "import sys; sys.modules['trio'] = None; import viewstamp.trio"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ImportError: viewstamp.trio needs trio: pip install 'viewstamp[trio]'"
