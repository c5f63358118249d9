"""Arcene of the feature selection challenge (NIPS 2003), UCI Machine Learning Repository."""

from sottovoce.problems.data.challenge import challenge_files, load_challenge
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.sources import Part, Source

SOURCE = Source(
    "arcene",
    "Guyon, Gunn, Ben-Hur and Dror (2004), Arcene, UCI Machine Learning Repository, doi:10.24432/C58P55, CC BY 4.0",
    "UCI Arcene, doi:10.24432/C58P55",
    challenge_files("arcene"),
    10000,
    (Part(100, 44, 70726744), Part(100, 44, 71410108)),
)


def arcene(download: bool = True) -> Dataset:
    """Arcene: mass spectra, cancer or not, 10 000 features; 100 rows and 100 to test (the validation part)."""
    return load_challenge(SOURCE, download)
