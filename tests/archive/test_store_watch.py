"""The look at a store in the background: nobody waits for it for long, and everybody gets its result."""

from __future__ import annotations

import threading

import pytest

from viewstamp.archive import store_watch
from viewstamp.archive.store_watch import StoreWatch
from viewstamp.errors import StorageError, UnavailableError


class Looks:
    """The looks of a test: each waits for ``release``, and fails while there is an ``error``."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 100.0
        self.error: Exception | None = StorageError("refused", remedy="correct it")
        self.release = threading.Event()
        self.changes: list[tuple[str, str]] = []
        self.changed = threading.Event()
        self.watch = StoreWatch("s3://b", self.look, self.on_change, monotonic=lambda: self.now)

    def look(self) -> None:
        self.count += 1
        assert self.release.wait(60)
        if self.error is not None:
            raise self.error

    def on_change(self, trouble: str, remedy: str) -> None:
        self.changes.append((trouble, remedy))
        self.changed.set()


def test_a_slow_look_ends_with_a_result_although_each_caller_waits_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "_WAIT_SECONDS", 0.01)
    looks = Looks()
    for _ in range(3):
        with pytest.raises(UnavailableError, match="has not answered yet"):
            looks.watch.check()
    looks.release.set()
    assert looks.changed.wait(60)
    for _ in range(3):
        with pytest.raises(StorageError, match="refused") as raised:
            looks.watch.check()
        assert raised.value.remedy == "correct it"
    assert looks.count == 1
    assert looks.changes == [("refused", "correct it")]


def test_after_a_while_an_error_is_looked_for_again() -> None:
    looks = Looks()
    looks.release.set()
    with pytest.raises((StorageError, UnavailableError)):
        looks.watch.check()
    assert looks.changed.wait(60)
    looks.error = None
    looks.changed.clear()
    looks.now += store_watch._NEW_SECONDS
    try:
        looks.watch.check()
    except UnavailableError:
        assert looks.changed.wait(60)
        looks.watch.check()
    assert looks.changed.wait(60)
    looks.watch.check()
    assert (looks.count, looks.changes[-1]) == (2, ("", ""))


def test_a_status_reports_the_newest_result_and_looks_again_if_that_is_old() -> None:
    looks = Looks()
    assert looks.watch.status() == {"where": "s3://b", "trouble": "", "remedy": "", "is_current": False}
    looks.now += store_watch._SLOW_SECONDS
    slow = looks.watch.status()
    assert (slow["trouble"], slow["is_current"]) == ("s3://b has not answered for 5 s", True)
    looks.release.set()
    assert looks.changed.wait(60)
    found = looks.watch.status()
    assert (found["trouble"], found["is_current"], looks.count) == ("refused", True, 1)
    looks.now += store_watch._CURRENT_SECONDS
    assert looks.watch.status()["is_current"] is False
