"""Heart disease in four hospitals, of the UCI Machine Learning Repository. It comes with the package."""

import numpy as np

from sottovoce.core import check
from sottovoce.problems.data.dataset import Dataset
from sottovoce.problems.data.encoded import encoded
from sottovoce.problems.data.sources import Part, Source, bundled

SOURCE = Source(
    "heart",
    "Janosi, Steinbrunn, Pfisterer and Detrano (1989), Heart Disease, UCI Machine Learning Repository, "
    "doi:10.24432/C52P4X, CC BY 4.0",
    "comes with the package",
    tuple(f"heart/processed.{hospital}.data" for hospital in ("cleveland", "hungarian", "switzerland", "va")),
    10,
    (Part(740, 383, 0),),
    {
        "heart/processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
        "heart/processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
        "heart/processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
        "heart/processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
    },
)
# The other columns, slope, ca and thal, are mostly missing outside Cleveland; the last one, num, is the label.
_COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
_NOTES = {
    "raw": (
        "slope, ca and thal dropped, then rows with '?'. Labels +1 where num > 0, else -1. Raw units, and codes of "
        "cp and restecg as they are: scale by public ranges before training. Cholesterol 0 means unknown (all of "
        "Switzerland)."
    ),
    "schema": (
        "slope, ca and thal dropped, then rows with '?'. Labels +1 where num > 0, else -1. Encoded by the schema "
        "that comes with the package (Schema.bundled('heart')): every row has norm 1, the bias included."
    ),
}


def heart(encoding: str = "schema") -> Dataset:
    """Heart disease in four hospitals, 740 complete rows of 10 attributes; `groups` names the hospital.

    `encoding` is "schema" (by the public schema that comes with the package) or "raw" (numbers and codes as they are).
    """
    check.one_of("heart", "encoding", encoding, ("schema", "raw"))
    rows: list[list[float]] = []
    labels: list[float] = []
    hospitals: list[str] = []
    for file in SOURCE.files:
        for line in bundled(SOURCE, file).split():  # its digest is known, so it needs no further check
            fields = line.split(",")
            kept = fields[: len(_COLUMNS)]
            if "?" not in kept:
                rows.append([float(value) for value in kept])
                labels.append(1.0 if int(fields[-1]) > 0 else -1.0)
                hospitals.append(file.split(".")[1])
    X, names, row_bound, schema = np.array(rows), _COLUMNS, None, None
    if encoding == "schema":
        X, names, schema = encoded("heart", dict(zip(_COLUMNS, X.T, strict=True)))
        row_bound = 1.0
    return Dataset(
        name="heart",
        X=X,
        y=np.array(labels),
        feature_names=names,
        source=SOURCE.citation,
        notes=_NOTES[encoding],
        groups=np.array(hospitals),
        row_bound=row_bound,
        schema=schema,
    )
