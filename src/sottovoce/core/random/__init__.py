"""Random numbers that depend only on (seed, client, round, purpose), compiled or not."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
