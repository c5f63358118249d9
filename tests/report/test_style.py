"""Figures: a method looks the same in every one of them, and they show what was recorded."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.check import InvalidInput
from sottovoce.core.round import History
from sottovoce.experiment.repetitions import Interval
from sottovoce.report import figures, style
from sottovoce.report.numbers import MEASURES, count, rounded_up, size
from sottovoce.report.style import styles
from sottovoce.report.tables import note, print_summaries, print_table


def test_no_two_methods_look_the_same() -> None:
    looks = [style.own_styles()[style._key(name)] for name in ALGORITHMS]
    assert len({(look.colour, look.dashes) for look in looks}) == len(looks)
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)


def test_a_method_looks_the_same_whatever_else_is_drawn() -> None:
    (alone,) = styles(["fed-plt"])
    assert styles(["x", "dp-admm", "Fed-PLT"])[2] == alone
    assert styles(["Fed-PLT, gradient", "dp-admm"])[0] == alone
    assert styles(["noisy GD"]) == styles(["DPSGD"]) == styles(["noisy gradient descent"]) == styles(["dp-sgd"])


def test_lines_of_one_method_differ_in_their_dashes() -> None:
    first, other, second = styles(["dp-admm", "dp-sgd", "dp-admm"])
    assert second == replace(first, dashes=second.dashes)
    assert second.dashes != first.dashes
    assert other.colour != first.colour


def test_names_that_are_no_methods_take_colours_that_are_free() -> None:
    assert [look.colour for look in styles(["0.1", "1", "10"])] == [0, 1, 2]
    mine, _, _, yours = styles(["mine", "dp-admm", "dp-sgd", "yours"])
    assert {mine.colour, yours.colour} & {0, 1} == set()
    assert len(styles([f"line {number}" for number in range(30)])) == 30


def test_the_picture_shows_what_was_recorded() -> None:
    history = History({"run": [0, 1, 0, 1], "round": [1, 1, 2, 2], "objective": [3.0, 2.0, 2.0, 1.0]})
    with_test = History(history.columns | {"test_accuracy": [0.5, 0.6, 0.7, 0.8]})
    widths = []
    for histories in ({"a": history}, {"a": history, "b": with_test}):
        content = figures.convergence(histories, {"objective": 0.5}, title="a title")
        assert content.startswith(b"\x89PNG")
        assert content == figures.convergence(histories, {"objective": 0.5}, title="a title")
        widths.append(int.from_bytes(content[16:20], "big"))
    assert widths[1] == 2 * widths[0]  # a second panel
    with pytest.raises(InvalidInput, match="needs a history with"):
        figures.convergence({"a": History({"round": [1]})})


def test_how_numbers_are_printed() -> None:
    accuracy, loss, _ = MEASURES
    assert (accuracy.text(0.5), accuracy.text(0.5, sign=True), accuracy.text(None)) == ("50.00%", "+50.00%", "–")
    assert loss.text(np.inf) == "not finite"
    known = Interval(np.array(0.25), np.array(0.125), np.array(0.375))
    assert loss.texts(known.plain(), sign=True) == ("+0.25", "+0.125 to +0.375")
    assert loss.texts({"mean": 1.0, "low": np.nan, "high": np.nan}) == ("1", "–")
    assert (count(45222), size(8_300_000), size(None)) == ("45 222", "8.3 MB", "–")
    assert rounded_up(73.1059, 1) == "73.2"


def test_an_accuracy_is_shown_beside_the_larger_class(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"method": "all-no", "rounds": 3, "privacy": "none", "test_accuracy": 0.97, "test_larger_class": 0.9712}
    print_summaries("run", [summary | {"test_balanced_accuracy": 0.5, "test_auc": math.nan}])
    told = capsys.readouterr().out
    assert told.count("97.12%") == 2  # in the cell of the accuracy, and in the line of all numbers
    assert "balanced accuracy 50.00%" in told
    assert "AUC" not in told  # there is none


def test_text_is_printed_as_it_is_and_never_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    odd = "[red]x[/] :smile: [/data]"
    note(odd)
    print_table([odd], [[odd]], {odd}, odd)
    assert capsys.readouterr().out.count(odd) == 4
