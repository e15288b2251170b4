"""Roles, and the text of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewstamp.errors import RequestError
from viewstamp.wire.access import Right, Token, TokenRole, check_roles, read_role
from viewstamp.wire.requests import REQUESTS

NAMES = st.text("abz.-_/", max_size=6)


def new_token() -> Token:
    return Token.new(lambda size: bytes(range(size)))


@given(NAMES, NAMES)
def test_a_pattern_with_a_star_covers_exactly_the_names_that_begin_so(beginning: str, name: str) -> None:
    assert TokenRole(Right.READ, beginning + "*").covers(name) == (name[: len(beginning)] == beginning)


@given(NAMES, NAMES)
def test_a_pattern_without_a_star_covers_exactly_its_own_name(pattern: str, name: str) -> None:
    assert TokenRole(Right.READ, pattern).covers(name) == (pattern == name)


@given(st.sampled_from(list(Right)), NAMES, st.booleans())
def test_a_role_is_read_back_from_its_text(right: Right, name: str, is_prefix: bool) -> None:
    pattern = "*" if right is Right.ADMINISTER or not name else name + "*" * is_prefix
    role = TokenRole(right, pattern)
    assert read_role(str(role)) == role


@given(st.text(max_size=20))
def test_any_text_is_a_role_or_is_refused(text: str) -> None:
    try:
        role = read_role(text)
    except RequestError:
        return
    assert read_role(str(role)) == role


@pytest.mark.parametrize(
    "text",
    [
        "",
        "write",
        "READ",
        "read:",
        "append:a*b",
        "append:**",
        "administer:*",
        "administer:x",
        "read:\n",
        "read:" + "x" * 300,
    ],
)
def test_other_texts_are_no_roles(text: str) -> None:
    with pytest.raises(RequestError, match="is no role"):
        read_role(text)


def test_a_right_alone_is_for_all_names() -> None:
    assert check_roles(["read", "read:*", "append:orders"]) == (
        TokenRole(Right.READ, "*"),
        TokenRole(Right.APPEND, "orders"),
    )
    for wrong in ([], None, "read", [3], ["read"] * 65):
        with pytest.raises(RequestError):
            check_roles(wrong)


def test_a_token_is_read_back_from_its_text_and_never_shows_its_secret() -> None:
    token = new_token()
    assert Token.read(token.text) == token
    assert Token.read(f" {token.text}\n") == token
    assert token.text.startswith(f"vst_{token.id}_")
    for shown in (repr(token), str(token), f"{token}", repr([token])):
        assert token.secret.hex() not in shown
        assert token.id in shown


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + "0", lambda text: text.upper()])
def test_a_damaged_token_is_refused_without_its_text(change: object) -> None:
    assert callable(change)
    text = change(new_token().text)
    with pytest.raises(RequestError) as refused:
        Token.read(text)
    assert new_token().secret.hex()[:20] not in f"{refused.value!r} {refused.value.remedy}".lower()


def test_hashes_of_equal_secrets_differ_by_id() -> None:
    token = new_token()
    assert len(token.hash) == 32
    assert token._replace(id="0" * 12).hash != token.hash
    assert token.secret not in token.hash


def test_every_request_names_a_field_of_its_own_for_its_right() -> None:
    """A right on a field that does not exist would be a right on any name."""
    for row in REQUESTS.values():
        need = row.needs
        assert need.on in ("", "payload", *(field.name for field in row.fields)), row
        assert (need.on == "payload") == (row.payload is not None), row
        assert need.rights or need.of in ("", "member", "session"), row
