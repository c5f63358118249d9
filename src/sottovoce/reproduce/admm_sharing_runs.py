"""How the trials of ADMM sharing's section 5 are run: columns of a data set at parties, or all in one place."""

from functools import lru_cache

import numpy as np

import sottovoce as sv
from sottovoce.algorithms.admm_sharing import ADMMSharing
from sottovoce.algorithms.fdml import FDML
from sottovoce.problems import data as datasets
from sottovoce.problems.vertical import VerticalFederation, cut
from sottovoce.reproduce.experiment import Columns

SPLITS = {"a9a": (66, 57), "madelon": (200, 200, 100), "arcene": (4000, 4000, 2000)}
BATCH = {"a9a": 64, "madelon": 64, "arcene": 10}
DELTA = 1e-5
ADMM, SGD = "ADMM sharing", "SGD"


@lru_cache(maxsize=1)
def load(data: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    found = datasets.load(data, download=False)
    assert found.test is not None
    X, test = found.X, found.test[0]
    if data != "a9a":
        low, high = X.min(axis=0), X.max(axis=0)
        width = np.maximum(high - low, 1e-12)
        X, test = (np.where(high > low, 2 * (part - low) / width - 1, 0.0) for part in (X, test))
    return X, found.y, test, found.test[1]


def trained(data: str, method: str, epochs: int, runs: int = 1, step: float = 0.0, epsilon: float = 0.0) -> Columns:
    """Objective and test loss after every epoch."""
    X, y, X_test, y_test = load(data)
    split = SPLITS[data]
    algorithm = ADMMSharing() if method == ADMM else FDML(step=step, batch=BATCH[data])
    per_epoch = algorithm.rounds_per_epoch(len(y)) if isinstance(algorithm, FDML) else 1
    result = sv.train(
        algorithm,
        VerticalFederation.from_columns(X, y, split),
        sv.Objective(sv.Logistic(), penalty=sv.L2(1 / len(y))),
        rounds=epochs * per_epoch,
        privacy=sv.Published(epsilon, DELTA) if epsilon else sv.NoPrivacy(),
        seed=0,
        runs=runs,
        test=(cut(X_test, split), y_test),
        record_every=per_epoch,
    )
    history = result.history
    epoch = np.rint(history["round"] / per_epoch)
    return {"epoch": epoch, "run": history["run"], "objective": history["objective"], "test_loss": history["test_loss"]}


def in_one_place(data: str, local: bool, epochs: int) -> Columns:
    """scikit-learn's logistic regression, on the first party's columns or on all."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    X, y, X_test, y_test = load(data)
    width = SPLITS[data][0] if local else X.shape[1]
    model = LogisticRegression(fit_intercept=False, max_iter=3000).fit(X[:, :width], y)
    loss = float(log_loss(y_test, model.predict_proba(X_test[:, :width]), labels=[-1.0, 1.0]))
    return {"epoch": np.arange(1.0, epochs + 1), "run": 0, "test_loss": loss}
