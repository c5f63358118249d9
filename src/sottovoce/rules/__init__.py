"""From public numbers to a method and its constants: no data, no training, no search. `numbers.py` has the formulas."""

from sottovoce.rules.choice import AUTO as AUTO
from sottovoce.rules.choice import METHODS as METHODS
from sottovoce.rules.choice import Choice as Choice
from sottovoce.rules.choice import Chosen as Chosen
from sottovoce.rules.choice import Rule as Rule
from sottovoce.rules.choice import choose as choose
from sottovoce.rules.choice import chosen as chosen
from sottovoce.rules.choice import constant_entry as constant_entry
from sottovoce.rules.choice import fitted as fitted
from sottovoce.rules.choice import without_noise as without_noise
from sottovoce.rules.numbers import Descent as Descent
from sottovoce.rules.numbers import PublicNumbers as PublicNumbers
from sottovoce.rules.numbers import descent as descent
from sottovoce.rules.numbers import slope_of as slope_of
