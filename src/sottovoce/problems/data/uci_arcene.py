"""Arcene of the feature selection challenge (NIPS 2003), UCI Machine Learning Repository."""

from sottovoce.problems.data.challenge import load_challenge
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Source

SOURCE = Source.named("arcene")


def arcene(download: bool = True) -> Dataset:
    """Arcene: mass spectra, cancer or not, 10 000 features; 100 rows and 100 to test (the validation part)."""
    return load_challenge(SOURCE, download)
