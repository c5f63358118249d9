"""The exact oracle of a linear model whose rows belong to many clients."""

from sottovoce.problems.rows.oracle import Rows, engine_for

__all__ = ["Rows", "engine_for"]
