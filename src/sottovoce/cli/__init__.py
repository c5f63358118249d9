"""The command line, one file per command."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
