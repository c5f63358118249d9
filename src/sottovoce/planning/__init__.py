"""Which method to use and what a budget buys, from public sizes alone."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
