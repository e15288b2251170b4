"""What recovery demands of the files before a core may run on them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.group import Group
from viewstamp.errors import CorruptionError
from viewstamp.host.disk import RealDisk
from viewstamp.wal.control_file import ControlFile


@pytest.mark.slow
async def test_a_history_that_does_not_describe_the_log_is_damage_and_nothing_is_guessed(tmp_path: Path) -> None:
    """Rule 20: the log's headers say in which term each record was written, and so does the history."""
    async with Group(tmp_path, 1) as group:
        await group.run()
        await group.client().create_topic("t")
        await group.stop("n1")
        control = ControlFile.open(RealDisk(), str(tmp_path / "n1"))
        assert control.state is not None
        (base, (term, begin)) = control.state.history
        control.write(replace(control.state, history=(base, (term, begin + 1))))
        with pytest.raises(CorruptionError, match=r"the log in .* holds terms from .* the control file says"):
            await group.start("n1")
