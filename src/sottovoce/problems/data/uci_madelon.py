"""Madelon of the feature selection challenge (NIPS 2003), UCI Machine Learning Repository."""

from sottovoce.problems.data.challenge import challenge_files, load_challenge
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Part, Source

SOURCE = Source(
    "madelon",
    "Guyon (2004), Madelon, UCI Machine Learning Repository, doi:10.24432/C5602H, CC BY 4.0",
    "UCI Madelon, doi:10.24432/C5602H",
    challenge_files("madelon"),
    500,
    (Part(2000, 1000, 488083511), Part(600, 300, 146395833)),
)


def madelon(download: bool = True) -> Dataset:
    """Madelon: artificial, 500 features of which 20 carry signal; 2000 rows and 600 to test (the validation part)."""
    return load_challenge(SOURCE, download)
