"""Finds the lines in which the users' own coroutines wait, for a scenario that does not end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["describe_waiting"]

_NOT_USERS = (str(Path(asyncio.__file__).parent), str(Path(__file__).parents[1]))


def describe_waiting(loop: asyncio.AbstractEventLoop) -> str:
    """Return a line for each task of users' code, with the lines in which it waits, the innermost last."""
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        frames = [frame for frame in _frames(task) if not frame.f_code.co_filename.startswith(_NOT_USERS)]
        if frames:
            places = (f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in frames)
            lines.append(f"{task.get_name()} waits in {', '.join(places)}")
    return "\n".join(lines)


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of the coroutines that await each other; ``Task.get_stack`` has only the outermost."""
    frames = []
    waiting: Any = task.get_coro()
    while getattr(waiting, "cr_frame", None) is not None:
        frames.append(waiting.cr_frame)
        waiting = waiting.cr_await
    return frames
