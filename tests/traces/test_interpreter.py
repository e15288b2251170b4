"""The interpreter evaluates TLA+ as TLC does, and refuses what it does not know."""

from pathlib import Path
from typing import Any

import pytest

from tests.traces.interpreter import Module, State

_COUNTER = """
---- MODULE Counter ----
EXTENDS Naturals  (* a comment, \\* and another *)
CONSTANTS Max, Node
VARIABLES count, owner
vars == <<count, owner>>

Free == owner = "nobody"   \\* of equal columns
Init == count = 0 /\\ owner = "nobody"
Take(n) ==
  /\\ Free
  /\\ owner' = n
  /\\ UNCHANGED count
Add(n, amount) ==
  LET next == count + amount
      wrong == <<>>[1] IN
  /\\ IF n = owner THEN next <= Max ELSE wrong = 0 /\\ FALSE
  /\\ \\/ count' = next
     \\/ amount = 2 /\\ count' = 0
  /\\ UNCHANGED owner
Next == \\E n \\in Node : Take(n) \\/ \\E amount \\in 1..2 : n = owner /\\ Add(n, amount)
Spec == Init /\\ [][Next]_vars
InBounds == count <= Max /\\ count \\in 0..Max
====
"""


def _module(tmp_path: Path, text: str, **constants: Any) -> Module:
    file = tmp_path / "Module.tla"
    file.write_text(text)
    return Module([file], constants)


def _reached(module: Module) -> list[State]:
    found = list(module.states("Init"))
    for state in found:
        found += [new for new in module.states("Next", state) if new not in found]
    return found


def test_each_state_of_a_module_is_reached_and_no_other(tmp_path: Path) -> None:
    module = _module(tmp_path, _COUNTER, Max=3, Node=frozenset({"a", "b"}))
    reached = _reached(module)
    expected = [{"count": 0, "owner": "nobody"}, *({"count": n, "owner": who} for who in "ab" for n in range(4))]
    assert len(reached) == len(expected)
    assert all(state in reached for state in expected)
    assert all(module.is_true("InBounds", state) for state in reached)
    assert not module.is_true("InBounds", {"count": 4, "owner": "a"})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3 - 1", 6),
        ("<<1, 2>> \\o Append(<<>>, 3)", (1, 2, 3)),
        ("[a |-> 1, b |-> <<2>>].b[1]", 2),
        ("[k \\in 1..2 |-> k * k]", (1, 4)),
        ('[n \\in {"x"} |-> 0]', {"x": 0}),
        ("[[a |-> <<1, 2>>, b |-> 3] EXCEPT !.a[2] = @ + 5, !.b = 0]", {"a": (1, 7), "b": 0}),
        ("CHOOSE k \\in 1..5 : k * k = 16", 4),
        ("{k \\in 1..5 : k > 2 /\\ ~ k = 4} \\cap 4..9 \\cup {9}", frozenset({5, 9})),
        ("Cardinality({1, 2, 2} \\ {1})", 1),
        ("SelectSeq(<<1, 2, 3>>, LAMBDA k : k # 2)", (1, 3)),
        ("SubSeq(<<1, 2, 3>>, 2, 3) = Tail(<<1, 2, 3>>)", True),
        ("SubSeq(<<1, 2, 3>>, 4, 3)", ()),
        ("\\A a, b \\in 1..2, c \\in {3} : a + b <= c \\/ a + b = 4", True),
        ("\\E k \\in 1..2 : k > 2", False),
        ("FALSE => 1 = 2 => FALSE", True),
        ("IF 1 \\in 2..3 THEN 1 ELSE CASE 1 > 2 -> 3 [] 2 > 1 -> 4", 4),
        ("LET a == 1  b == a + 1 IN b", 2),
        ("Double(Head(<<4, 5>>))", 8),
        ("UNION {{k, k + 10} : k \\in 1..2}", frozenset({1, 2, 11, 12})),
        ("{k * k : k \\in 1..3} = {9, 4, 1}", True),
        ("{k \\in 1..3 : TRUE} = 1..3", True),
        ("{1, 3} # 1..3", True),
        ("Cardinality({f[1] + f[2] : f \\in [1..2 -> 1..3]})", 5),
        ("LET Twice(k) == 2 * k  n == Twice(3) IN Twice(n)", 12),
        ("LET RECURSIVE Of(_, _) Of(k, n) == IF n = 0 THEN 1 ELSE k * Of(k, n - 1) IN Of(2, 5)", 32),
        ("Sum(<<1, 2, 3>>)", 6),
    ],
)
def test_an_expression_has_its_value(tmp_path: Path, expression: str, value: object) -> None:
    text = f"""RECURSIVE Sum(_)
Double(k) == k * 2
Sum(s) == IF s = <<>> THEN 0 ELSE Head(s) + Sum(Tail(s))
VARIABLE found
Init == found = ({expression})
"""
    assert list(_module(tmp_path, text).states("Init")) == [{"found": value}]


@pytest.mark.parametrize(
    ("expression", "error"),
    [("1 ^ 2", SyntaxError), ("ENABLED Init", SyntaxError), ("[1, 2]", SyntaxError), ("<<1>>[2]", IndexError)],
)
def test_what_is_unknown_is_an_error(tmp_path: Path, expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(_module(tmp_path, f"VARIABLE found\nInit == found = {expression}\n").states("Init"))


def test_an_action_that_leaves_a_variable_open_is_an_error(tmp_path: Path) -> None:
    module = _module(tmp_path, "VARIABLES a, b\nInit == a = 0 /\\ b = 0\nNext == a' = 1\n")
    [state] = module.states("Init")
    with pytest.raises(ValueError, match="Next leaves b open"):
        list(module.states("Next", state))
