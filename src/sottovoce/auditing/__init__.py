"""Audits: what the messages of a method give away at least, and whether a saved run holds together."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
