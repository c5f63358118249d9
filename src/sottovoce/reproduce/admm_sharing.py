"""ADMM sharing ("Learning Privately over Distributed Features"), section 5: loss over epochs, wide data, noise.

a9a with 66 and 57 columns as printed. gisette is not at hand: madelon (200, 200, 100 columns) and arcene (4000, 4000,
2000) stand in for wide data, columns scaled to [-1, 1] by the training rows. The paper gives neither its regulariser
nor its levels of noise: here the ridge is that of scikit-learn's default (1/2 |x|² next to the summed loss), and
noise is `Published` noise for several eps per round. Gradient descent is tuned: the best of three steps.
"""

from collections.abc import Sequence

import numpy as np

from sottovoce.reproduce.admm_sharing_runs import ADMM, SGD, in_one_place, trained
from sottovoce.reproduce.experiment import Cell, Claim, Experiment, Finding, Panel, Table
from sottovoce.reproduce.verdicts import Rule, alike, highest, lowest, tuned

STEPS = {"a9a": (0.1, 0.5, 2.0), "madelon": (0.003, 0.01, 0.03), "arcene": (1e-4, 1e-3, 1e-2)}
BEST_STEP = tuned("test_loss", "step", "method")

# ------------------------------------------------------------------------------- Figures 1(a) and 2(a): without privacy


def _convergence(data: str, figure: str, claims: Sequence[Claim], note: str = "") -> Experiment:
    def cells(quick: bool) -> Sequence[Cell]:
        options = {"data": data, "epochs": 2 if quick else 40}
        return [
            Cell({"method": ADMM, "step": 0.0}, trained, {"method": ADMM, **options}),
            *(
                Cell({"method": SGD, "step": step}, trained, {"method": SGD, "step": step, **options})
                for step in (STEPS[data][1:2] if quick else STEPS[data])
            ),
        ]

    return Experiment(
        f"admm-sharing-{data}",
        "ADMM sharing",
        f"{figure}(a): objective and test loss over epochs on {data}",
        cells,
        claims,
        [Panel(y, "epoch", ("method", "step"), log="y") for y in ("objective", "test_loss")],
        "Without privacy, one run each. An epoch is one round of ADMM sharing, or one pass over all samples of "
        f"gradient descent. {note}",
        needs=(data,),
    )


def _few_epochs(table: Table) -> Finding:
    """Epochs until the test loss is within 2 % of where it ends."""
    rows = table.where(method=ADMM)
    loss = rows["test_loss"][np.argsort(rows["epoch"])]
    far = np.flatnonzero(np.abs(loss - loss[-1]) > 0.02 * loss[-1])
    epochs = int(far[-1]) + 2 if len(far) else 1
    return Finding(f"{epochs} of {len(loss)} epochs", epochs <= 20)


WIDE = (
    Claim(
        "on wide data ADMM sharing ends with a smaller test loss than SGD",
        "0.08 against 0.1 on gisette",
        lowest("test_loss", "method", ADMM, of=BEST_STEP),
        "another data set than gisette: on madelon, most of whose columns are noise, ADMM sharing gets "
        "further down the training objective, and that fits noise; SGD has the best of three steps",
    ),
    Claim(
        "on wide data ADMM sharing converges in a few epochs",
        "a few; at most 20, as we read it",
        _few_epochs,
        "on madelon the test loss rises from epoch 2 on, as the model fits noise; the training objective falls in "
        "every epoch, and is within 2 % of its end after 9",
    ),
)
NARROW = (
    Claim(
        "ADMM sharing and SGD reach the same test log loss",
        "the same; to 0.01, as we read it",
        alike("test_loss", "method", 0.01, of=BEST_STEP),
    ),
    Claim(
        "ADMM sharing is slightly slower than SGD",
        "slower (objective after 2 epochs)",
        highest("objective", "method", ADMM, where={"epoch": 2.0}, of=BEST_STEP),
    ),
)
A9A = _convergence("a9a", "Figure 1", NARROW)
MADELON = _convergence("madelon", "Figure 2", WIDE)
ARCENE = _convergence(
    "arcene",
    "Figure 2",
    WIDE,
    "The best step of SGD, 0.01, is the largest of the three: a longer or one in between may do better.",
)

# ------------------------------------------------------------------------------- Figures 1(b), 2(b) and 3: under noise

EPSILONS = (0.1, 1.0, 10.0, 100.0)
NO_NOISE, LEAST_NOISE, MOST_NOISE = "no noise", f"eps = {EPSILONS[-1]:g}", f"eps = {EPSILONS[0]:g}"
ALONE, ALL = "first party alone", "all columns in one place"


def _lower(method: str, than: str) -> Rule:
    return lowest("test_loss", "method", method, where={"method": [method, than]})


CLAIMS = (
    Claim(
        "columns of others make the first party's model better",
        "lower loss without noise than alone",
        _lower(NO_NOISE, ALONE),
        "not gisette: on madelon most columns are noise, and a model that has more of them fits more of it",
    ),
    Claim(
        "moderate noise still leaves it better than alone",
        "lower loss with the least noise",
        _lower(LEAST_NOISE, ALONE),
        "the paper names noise levels without their eps; what Theorem 3 asks for at eps = 100 a round is still "
        "far too much",
    ),
    Claim("too much noise ruins the model", "higher loss with the most noise", _lower(ALONE, MOST_NOISE)),
)
BETTER = Claim(
    "on wide data ADMM sharing is better than scikit-learn on all columns",
    "lower loss (gisette)",
    _lower(NO_NOISE, ALL),
)


def _noise(data: str, figure: str, claims: Sequence[Claim]) -> Experiment:
    def cells(quick: bool) -> Sequence[Cell]:
        options = {"data": data, "epochs": 2 if quick else 20}
        noisy = {"method": ADMM, "runs": 1 if quick else 5, **options}
        return [
            Cell({"method": NO_NOISE, "epsilon": 0.0}, trained, {"method": ADMM, **options}),
            *(
                Cell({"method": f"eps = {e:g}", "epsilon": e}, trained, {**noisy, "epsilon": e})
                for e in (EPSILONS[-1:] if quick else EPSILONS)
            ),
            Cell({"method": ALONE, "epsilon": 0.0}, in_one_place, {"local": True, **options}),
            Cell({"method": ALL, "epsilon": 0.0}, in_one_place, {"local": False, **options}),
        ]

    return Experiment(
        f"admm-sharing-noise-{data}",
        "ADMM sharing",
        f"{figure}: test loss on {data} under noise, and of models in one place",
        cells,
        claims,
        [Panel("test_loss", "epoch", ("method",), log="y")],
        "5 runs, 20 epochs; eps per round. The paper's noise on a party's model is not private at any level: its "
        "releases lie in a subspace that depends on the data. Without noise, sharing and a model on all columns in one "
        "place minimise one function: they differ only because sharing stops after 20 epochs.",
        needs=(data,),
    )


NOISES = (
    _noise("a9a", "Figures 1(b) and 3(a)", CLAIMS),
    _noise("madelon", "Figures 2(b) and 3(b)", (*CLAIMS, BETTER)),
    _noise("arcene", "Figures 2(b) and 3(b)", (*CLAIMS, BETTER)),
)
EXPERIMENTS = (A9A, MADELON, ARCENE, *NOISES)
