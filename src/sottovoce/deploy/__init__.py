"""Training between machines: the node of a data owner, the server, and what they send."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
