"""Madelon of the feature selection challenge (NIPS 2003), UCI Machine Learning Repository."""

from sottovoce.problems.data.challenge import load_challenge
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Source

SOURCE = Source.named("madelon")


def madelon(download: bool = True) -> Dataset:
    """Madelon: artificial, 500 features of which 20 carry signal; 2000 rows and 600 to test (the validation part)."""
    return load_challenge(SOURCE, download)
