"""Every mutant still applies. Whether it is caught takes minutes: `make mutants`."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import sottovoce
from tests.mutants.mutants import MUTANTS, Mutant

SOURCE = Path(sottovoce.__file__).parent
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_line_and_compiles(mutant: Mutant) -> None:
    text = (SOURCE / mutant.file).read_text()
    assert text.count(mutant.before) == 1
    changed = text.replace(mutant.before, mutant.after)
    lines = enumerate(zip(text.splitlines(), changed.splitlines(), strict=True), start=1)
    (number,) = [number for number, (one, other) in lines if one != other]
    assert around(number, text) != around(number, changed), "nothing but a comment differs"


def around(number: int, text: str) -> str:
    """What Python makes of the statement of a file that this line is in, or after which it stands."""
    ends = {node.end_lineno or 0: node for node in ast.parse(text).body}
    return ast.dump(ends[min((end for end in ends if end >= number), default=max(ends))])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_names_tests_that_exist(mutant: Mutant) -> None:
    file, *selected = mutant.tests
    text = (TESTS.parent / file).read_text()
    for words in (selected[1] if selected else "").split(" or "):
        word = words.split(" and ")[0]
        assert re.search(rf"^def test_\w*{word}", text, re.MULTILINE), f"{file} has no test of {word!r}"


def test_every_mutant_is_named_once_and_has_an_audit_or_a_reason_for_none() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    assert all(bool(mutant.audit) != bool(mutant.blind) and mutant.tests for mutant in MUTANTS)
    assert len(MUTANTS) >= 45
