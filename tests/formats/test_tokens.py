"""Tokens that a program has pickled with an earlier release, and tokens that an earlier release reads."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.formats.build import FIXTURES, TOKEN
from viewstamp.errors import OutcomeToken
from viewstamp.ids import GROUP_0, GroupId

ALL = sorted(FIXTURES.glob("*.token"))


@pytest.mark.parametrize("path", ALL, ids=[path.name for path in ALL])
def test_a_token_of_an_earlier_release_belongs_to_group_0(path: Path) -> None:
    token = pickle.loads(path.read_bytes())
    assert token == TOKEN
    assert token.group == GROUP_0
    assert repr(token) == repr(TOKEN)


def test_a_token_of_group_0_is_pickled_as_by_the_release_before_groups() -> None:
    assert pickle.dumps(TOKEN, protocol=4) == (FIXTURES / "0.1-c.token").read_bytes()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("group", [0, 1207])
def test_a_token_is_the_same_after_pickling_and_copying(group: int, protocol: int) -> None:
    token = replace(TOKEN, group=GroupId(group))
    assert pickle.loads(pickle.dumps(token, protocol=protocol)) == token
    assert copy.deepcopy(token) == copy.copy(token) == token


def test_a_release_before_groups_refuses_the_token_of_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask group 0, and fence records of another session there."""
    pickled = pickle.dumps(replace(TOKEN, group=GroupId(1207)))
    monkeypatch.delattr("viewstamp.errors._token_of_group")  # A release before groups does not have it.
    with pytest.raises(AttributeError, match="_token_of_group"):
        pickle.loads(pickled)


def test_a_token_that_lacks_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        OutcomeToken.__new__(OutcomeToken).__setstate__([7, 3, 2, 4])  # type: ignore[attr-defined]
