"""From public numbers to a method and its constants: no data, no training, no search. `numbers.py` has the formulas."""

# ruff: noqa: F401

from sottovoce.rules.choice import AUTO, METHODS, Chosen, Rule, choose, chosen, constant_entry, fitted, without_noise
from sottovoce.rules.numbers import Descent, PublicNumbers, descent, slope_of
