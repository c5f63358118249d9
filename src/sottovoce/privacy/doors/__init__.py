"""The doors to the data: they clip, add noise, charge the ledger, and refuse when a budget is spent."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
