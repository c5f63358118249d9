"""Heart disease in four hospitals, of the UCI Machine Learning Repository. It comes with the package."""

import numpy as np

from sottovoce.core import check
from sottovoce.problems.data.dataset import Dataset, encoded
from sottovoce.problems.data.sources import Source, bundled

SOURCE = Source.named("heart")
# The other columns, slope, ca and thal, are mostly missing outside Cleveland; the last one, num, is the label.
_COLUMNS = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")


def heart(encoding: str = "schema") -> Dataset:
    """Heart disease in four hospitals, 740 complete rows of 10 attributes; `groups` names the hospital.

    `encoding` is "schema" (by the public schema that comes with the package) or "raw" (numbers and codes as they are).
    """
    check.one_of("heart", "encoding", encoding, ("schema", "raw"))
    # The digest of a file is known, so its lines need no further check.
    lines = [(file, line.split(",")) for file in SOURCE.files for line in bundled(SOURCE, file).split()]
    complete = [(file, fields) for file, fields in lines if "?" not in fields[: len(_COLUMNS)]]
    rows = np.array([fields[: len(_COLUMNS)] for _, fields in complete], dtype=np.float64)
    y = np.array([1.0 if int(fields[-1]) > 0 else -1.0 for _, fields in complete])
    groups = np.array([file.split(".")[1] for file, _ in complete])
    if encoding == "raw":
        return SOURCE.dataset(rows, y, _COLUMNS, encoding, groups=groups)
    X, names, schema = encoded("heart", dict(zip(_COLUMNS, rows.T, strict=True)))
    return SOURCE.dataset(X, y, names, encoding, groups=groups, row_bound=1.0, schema=schema)
