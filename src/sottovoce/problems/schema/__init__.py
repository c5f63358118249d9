"""A public schema: what everybody knows of a table, stated and never read off its rows.

For every column a range, a list of levels or a range of dates; whether values are missing; the label and the owner.
Each row is encoded by itself and divided by its own length, so the encoding learns nothing and costs no privacy, and
no encoded row is longer than 1, whatever the ranges.
"""

from sottovoce.problems.schema.columns import Category, Column, Date, Number, OneHot
from sottovoce.problems.schema.label import Label
from sottovoce.problems.schema.schema import Schema

__all__ = ["Category", "Column", "Date", "Label", "Number", "OneHot", "Schema"]
