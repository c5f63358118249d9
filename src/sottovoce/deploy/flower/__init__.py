"""The files that import Flower."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
