"""The contract between algorithms and the rest, the one training loop, participation, and checks of input."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
