"""Privacy modes, the doors that clip and add noise, accounting, and the text of guarantees."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
