"""What is minimised and on which data: losses, penalties, federations of rows or columns, and data sets."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
