"""Heart disease in three hospitals, as each of them would prepare its own rows: CSV files for docs/deploy.md.

Every hospital does the same to its rows without looking at them: each attribute goes from a public range to [-1, 1], a
constant is added, and all is divided by the root of the number of columns. So no row is longer than 1, whoever has it.

    python examples/hospitals/prepare.py hospitals
"""

import sys
from pathlib import Path

import numpy as np

from sottovoce.problems import data as datasets

HOSPITALS = ("cleveland", "hungarian", "va")  # Switzerland did not record cholesterol
RANGES = {  # units and codes of the data set's own description
    "age": (0, 100),
    "sex": (0, 1),
    "cp": (1, 4),
    "trestbps": (0, 250),
    "chol": (0, 650),
    "fbs": (0, 1),
    "restecg": (0, 2),
    "thalach": (0, 250),
    "exang": (0, 1),
    "oldpeak": (-3, 7),
}


def scaled(X: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Rows in [-1, 1] by public ranges, with a constant, none longer than 1."""
    low, high = np.array([RANGES[name] for name in names], dtype=float).T
    inside = np.clip(2 * (X - low) / (high - low) - 1, -1, 1)
    return np.column_stack([inside, np.ones(len(X))]) / np.sqrt(X.shape[1] + 1)


def main(folder: Path) -> None:
    heart = datasets.heart("raw")
    assert heart.groups is not None
    X = scaled(heart.X, heart.feature_names)
    header = ",".join([*heart.feature_names, "constant", "ill"])
    folder.mkdir(parents=True, exist_ok=True)
    for hospital in HOSPITALS:
        mine = heart.groups == hospital
        rows = [",".join([*map(repr, x.tolist()), str(int(y))]) for x, y in zip(X[mine], heart.y[mine], strict=True)]
        (folder / f"{hospital}.csv").write_text("\n".join([header, *rows, ""]))
        print(f"{hospital}: {mine.sum()} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals"))
