"""Real data sets under one roof: the same name always gives the same numbers.

Adult and heart disease come with the package. The others are read from the folder named by the environment variable
SOTTOVOCE_DATA, or downloaded from OpenML. Every copy is compared with published digests, counts and sums, so that a
truncated or altered copy is refused and not trained on.
"""

import inspect
from collections.abc import Callable, Mapping

from sottovoce.core import check
from sottovoce.problems.data import libsvm_a9a, uci_adult, uci_challenge, uci_heart
from sottovoce.problems.data.dataset import Dataset as Dataset
from sottovoce.problems.data.dataset import DatasetInfo as DatasetInfo
from sottovoce.problems.data.dataset import split as split
from sottovoce.problems.data.dataset import split_rows as split_rows
from sottovoce.problems.data.libsvm_a9a import a9a as a9a
from sottovoce.problems.data.sources import FOLDER_VARIABLE as FOLDER_VARIABLE
from sottovoce.problems.data.sources import info
from sottovoce.problems.data.uci_adult import ENCODINGS as ENCODINGS
from sottovoce.problems.data.uci_adult import adult as adult
from sottovoce.problems.data.uci_challenge import arcene as arcene
from sottovoce.problems.data.uci_challenge import madelon as madelon
from sottovoce.problems.data.uci_heart import heart as heart
from sottovoce.problems.schema.schema import BUNDLED

SOURCES = (uci_adult.SOURCE, libsvm_a9a.SOURCE, uci_heart.SOURCE, uci_challenge.MADELON, uci_challenge.ARCENE)
LOADERS: dict[str, Callable[..., Dataset]] = {
    "adult": adult, "a9a": a9a, "heart": heart, "madelon": madelon, "arcene": arcene
}  # fmt: skip


def load(name: str, **options: object) -> Dataset:
    """The data set called `name`; options are those of the function of that name in this package.

    Sets that come with a public schema are encoded by it, unless `encoding` asks for another preparation.

    Examples
    --------
    >>> from sottovoce.problems import data
    >>> heart = data.load("heart")
    >>> heart.X.shape, sorted(set(heart.groups.tolist()))
    ((740, 60), ['cleveland', 'hungarian', 'switzerland', 'va'])
    """
    loader = LOADERS[check.one_of("data", "data set", name, LOADERS)]
    check.options(name, options, list(inspect.signature(loader).parameters))
    return loader(**options)


def has_schema(name: str, options: Mapping[str, object]) -> bool:
    """Whether `load` encodes this data set by a public schema, if it is given these options."""
    return name in BUNDLED and options.get("encoding", "schema") == "schema"


def available() -> list[DatasetInfo]:
    """Every data set this library knows and whether it is here. Looks for files, reads none."""
    return [info(source) for source in SOURCES]
