"""ADMM sharing ("Learning Privately over Distributed Features"), section 5: loss over epochs, wide data, noise.

a9a with 66 and 57 columns as printed. gisette is not at hand. Two sets stand in for wide data, and neither is gisette:
arcene (4000, 4000, 2000 columns of 100 rows), and a made-up set in gisette's manner (`like_gisette`). Their columns
are scaled to [-1, 1] by the training rows. The paper gives neither its regulariser nor its levels of noise: here the
ridge is that of scikit-learn's default (1/2 |x|² next to the summed loss), and a level is the σ of Theorem 3 at the
first party (others have σ in proportion to 1/d_m). Without noise both methods are tuned: the best of several steps of
gradient descent, and of several ρ of ADMM sharing, which the paper does not print either.

All is deterministic but noise and batches, and one run decides nothing: so everything is run on several draws of the
rows, and differences are taken draw by draw. Draws of a9a and arcene are all training rows, and then nine tenths of
them; every draw of the made-up set is made anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FDML, ADMMSharing
from sottovoce.privacy import paper_noise
from sottovoce.problems import data as datasets
from sottovoce.problems.vertical import cut
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Finding, Panel, Setting, Sweep, Table
from sottovoce.reproduce.groups import mean, means, tuned
from sottovoce.reproduce.verdicts import Rule, alike, highest, lowest

LIKE_GISETTE = "like gisette"
SPLITS = {"a9a": (66, 57), LIKE_GISETTE: (800, 800, 400), "arcene": (4000, 4000, 2000)}
BATCH = {"a9a": 64, LIKE_GISETTE: 64, "arcene": 10}
# Of SGD; and of ADMM sharing ρ, as multiples of 2L. The best is inside of what is tried. RHO is the best, for noise.
STEPS = {"a9a": (0.01, 0.03, 0.1), LIKE_GISETTE: (0.3, 1.0, 3.0), "arcene": (0.002, 0.005, 0.01)}
RHOS = {"a9a": (1.0, 0.1, 0.01), LIKE_GISETTE: (0.01, 1e-3, 3e-4, 1e-4), "arcene": (10.0, 1.0, 0.1)}
RHO = {"a9a": 0.1, LIKE_GISETTE: 3e-4, "arcene": 1.0}
DRAWS = 8
NOISE = 4.5  # of a column, in units of its deviation: a model on all columns has about the loss of gisette's, 0.08
DELTA, B1 = 1e-5, 1.0
ADMM, SGD = "ADMM sharing", "SGD"
BEST_STEP = tuned("test_loss", "step", "method")
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # rows and labels for training, and for testing


# ------------------------------------------------------------------------------------------------------------- the data


def like_gisette(draw: int, train: int = 3000, test: int = 1000, columns: int = 2000) -> Arrays:
    """The digits 4 and 9 of scikit-learn as pixels and products of pairs of pixels, and as many probes. Not gisette.

    A row is a mixture of two images of one digit with some noise. Test rows are made of other images. A probe is such
    a column with its rows in another order: as spread as the others, and of no use. gisette has 6000 rows of 5000
    columns, from larger images. Every draw has its own pairs, probes, mixtures and noise: only the images are the same.
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(draw)
    images, digits = load_digits(return_X_y=True)
    pairs = rng.integers(64, size=(columns // 2 - 64, 2))
    probe = rng.permutation(columns) < columns // 2

    def rows(count: int, testing: bool) -> tuple[np.ndarray, np.ndarray]:
        y = np.where(rng.random(count) < 0.5, 1.0, -1.0)
        pixels = np.empty((count, 64))
        for label, digit in ((1.0, 9), (-1.0, 4)):
            own, pool = np.flatnonzero(y == label), images[digits == digit]
            pool = pool[::5] if testing else np.delete(pool, np.s_[::5], axis=0)
            one, other = (pool[rng.integers(len(pool), size=len(own))] for _ in range(2))
            mixed = rng.random((len(own), 1))
            pixels[own] = mixed * one + (1 - mixed) * other
        useful = np.hstack([pixels, pixels[:, pairs[:, 0]] * pixels[:, pairs[:, 1]]])
        useful += rng.normal(size=useful.shape) * (NOISE * useful.std(axis=0))
        useless = np.column_stack([rng.permutation(column) for column in useful.T])
        X = np.empty((count, columns))
        X[:, ~probe], X[:, probe] = useful, useless
        return X, y

    (X, y), (X_test, y_test) = rows(train, testing=False), rows(test, testing=True)
    return X, y, X_test, y_test


@lru_cache(maxsize=1)
def load(data: str, draw: int) -> Arrays:
    """Draw 0 has all training rows, the others a random nine tenths of them; what is made up is made anew."""
    if data == LIKE_GISETTE:
        X, y, X_test, y_test = like_gisette(draw)
    else:
        loaded = datasets.load(data, download=False, **({"encoding": "binary"} if data == "a9a" else {}))
        assert loaded.test is not None
        X, y, (X_test, y_test) = loaded.X, loaded.y, loaded.test
    if draw and data != LIKE_GISETTE:
        kept = np.random.default_rng(draw).permutation(len(y))[: round(0.9 * len(y))]
        X, y = X[kept], y[kept]
    if data != "a9a":
        low, high = X.min(axis=0), X.max(axis=0)
        width = np.maximum(high - low, 1e-12)
        X, X_test = (np.where(high > low, 2 * (part - low) / width - 1, 0.0) for part in (X, X_test))
    return X, y, X_test, y_test


# ------------------------------------------------------------------------------------------------------------- training


def claimed_epsilon(data: str, rows: int, level: float, share: float) -> float:
    """The eps of a round that Theorem 3 gives noise of σ = `level` at the first party (Lemma 1 is not true), where ρ
    is this share of 2L."""
    parties = len(SPLITS[data])
    weight = max(1.0, parties / 2) if share >= 1 else parties  # with the proximal term
    change = paper_noise.sharing_sensitivity(
        SPLITS[data][0], share * 2 * 0.25 / rows * weight, 1 / rows, 1.0, parties, B1
    )
    return float(paper_noise.sharing_sigma(change, 1.0, DELTA)) / level


def trained(
    data: str, draw: int, epochs: int, step: float, method: str = ADMM, level: float = 0.0, runs: int = 1
) -> Columns:
    """Objective and test loss after every epoch, with noise of this level (0: none). `step` is that of SGD, or ρ/2L."""
    X, y, X_test, y_test = load(data, draw)
    split, epsilon = SPLITS[data], claimed_epsilon(data, len(y), level, step) if level else 0.0
    algorithm, rounds = ADMMSharing(rho=step * 2 * 0.25 / len(y), b1=B1), 1  # in an epoch
    if method == SGD:
        algorithm = FDML(step=step, batch=BATCH[data])
        rounds = algorithm.rounds_per_epoch(len(y))
    history = sv.train(
        algorithm,
        sv.VerticalFederation.from_columns(X, y, split),
        sv.Objective(sv.Logistic(), penalty=sv.L2(1 / len(y))),
        rounds=epochs * rounds,
        privacy=sv.Published(epsilon, DELTA) if level else sv.NoPrivacy(),
        seed=draw,
        runs=runs,
        test=(cut(X_test, split), y_test),
        record_every=rounds,
    ).history
    recorded = {name: history[name] for name in ("run", "objective", "test_loss")}
    return {"epoch": np.rint(history["round"] / rounds), **recorded, "epsilon": epsilon}


def in_one_place(data: str, draw: int, local: bool, epochs: int) -> Columns:
    """scikit-learn's logistic regression, on the first party's columns or on all."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    X, y, X_test, y_test = load(data, draw)
    width = SPLITS[data][0] if local else X.shape[1]
    model = LogisticRegression(fit_intercept=False, max_iter=3000).fit(X[:, :width], y)
    loss = float(log_loss(y_test, model.predict_proba(X_test[:, :width]), labels=[-1.0, 1.0]))
    return {"epoch": np.arange(1.0, epochs + 1), "run": 0, "test_loss": loss, "epsilon": 0.0}


# ------------------------------------------------------------------------------- Figures 1(a) and 2(a): without privacy


def _name(data: str) -> str:
    return data.replace(" ", "-")


def _convergence(data: str, figure: str, claims: tuple[Claim, ...]) -> Experiment:
    tried = {ADMM: RHOS[data], SGD: STEPS[data]}
    methods: list[Setting] = [{"method": name, "step": step} for name, steps in tried.items() for step in steps]
    settings = [{**method, "draw": draw} for draw in range(DRAWS) for method in methods]
    few = [{**method, "draw": 0} for method in methods[2:4]]
    return Experiment(
        f"admm-sharing-{_name(data)}",
        f"{figure}(a), {_shown(data)}: objective and test loss over epochs",
        Sweep(trained, settings, few, {"data": data, "epochs": 30}, {"epochs": 2}),
        _counted(data, *claims),
        [
            Panel(y, "epoch", ("method", "step"), log="y", legend="ADMM: ρ/2L; SGD: step")
            for y in ("objective", "test_loss")
        ],
        needs=() if data == LIKE_GISETTE else (data,),
        summary=_tuned,
    )


def _counted(data: str, *claims: Claim) -> list[Claim]:
    """Only a9a is the paper's own data."""
    return [replace(claim, kind="measured" if data == "a9a" else "stand-in") for claim in claims]


def _tuned(table: Table) -> str:
    """Where the loss ends with each ρ and step, and how soon it is there."""
    rows = []
    for (method, step), part in table.each("method", "step"):
        epochs = ", ".join(map(str, epochs_needed(part, NEAR)))
        loss = f"{mean(part.at_end(), 'test_loss').value:.4g}"
        rows.append([f"{method}, {'ρ/2L' if method == ADMM else 'step'} {step:g}", loss, epochs])
    ends = {method: means(part.at_end(), "test_loss", "step") for (method,), part in table.each("method")}
    best = {method: min(found, key=lambda step: found[step].value) for method, found in ends.items()}
    inside = ", ".join(f"{method} {min(ends[method]) < step < max(ends[method])}" for method, step in best.items())
    shown = markdown_table(["tried", "test loss at the end", "epochs to 5 % of that, each draw"], rows)
    return f"{shown}\n\nThe best is inside of what was tried: {inside.replace('True', 'yes').replace('False', 'no')}.\n"


def _shown(data: str) -> str:
    return {"a9a": data, LIKE_GISETTE: "a set made like gisette (not gisette)"}.get(data, f"{data} (not gisette)")


FEW, NEAR = 10, 0.05  # few epochs, and how near to its end the loss must be


def epochs_needed(rows: Table, within: float) -> list[int]:
    """From which epoch on the mean test loss is within this share of where it ends, on each draw."""
    needed = []
    for _, part in rows.each("draw"):
        loss = np.array([np.mean(at["test_loss"]) for _, at in part.each("epoch")])
        far = np.flatnonzero(np.abs(loss - loss[-1]) > within * loss[-1])
        needed.append(int(far[-1]) + 2 if len(far) else 1)
    return needed


def few_epochs(most: int, within: float, of: Callable[[Table], Table] = lambda all_: all_, **where: str) -> Rule:
    """The mean test loss is, from epoch `most` on, within this share of where it ends, on every draw."""

    def measure(table: Table) -> Finding:
        rows = of(table).where(**where)
        needed = epochs_needed(rows, within)
        text = f"{', '.join(map(str, needed))} of {rows['epoch'].max():g} epochs"
        return Finding(text, max(needed) <= most if len(needed) > 1 else None)

    return measure


def _epochs(table: Table) -> Table:
    """Of both methods, tuned: the epochs that each draw takes."""
    found = [(*key, epochs_needed(rows, NEAR)[0]) for key, rows in BEST_STEP(table).each("method", "draw")]
    return Table.of(dict(zip(("method", "draw", "epochs"), zip(*found, strict=True), strict=True)))


WIDE = (
    Claim(
        "on wide data ADMM sharing ends with a smaller test loss than SGD",
        "0.08 against 0.1 on gisette",
        lowest("test_loss", "method", ADMM, of=BEST_STEP, paired="draw"),
    ),
    Claim(
        "on wide data ADMM sharing converges in a few epochs",
        "a few; to 5 % after at most 10, as we read it",
        few_epochs(FEW, NEAR, of=BEST_STEP, method=ADMM),
    ),
    Claim(
        "on wide data SGD takes more epochs",
        "many more; clearly more epochs to 5 %, as we read it",
        highest("epochs", "method", SGD, of=_epochs, paired="draw"),
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
        "slightly slower; clearly more epochs to 5 %, as we read it",
        highest("epochs", "method", ADMM, of=_epochs, paired="draw"),
    ),
)
A9A = _convergence("a9a", "Figure 1", NARROW)
GISETTE = _convergence(LIKE_GISETTE, "Figure 2", WIDE)
ARCENE = _convergence("arcene", "Figure 2", WIDE)

# ------------------------------------------------------------------------------- Figures 1(b), 2(b) and 3: under noise

LEVELS = (0.1, 1.0, 10.0, 100.0)
FINER = {"arcene": (0.3,)}  # more of them, where none of these is moderate
NAMES = {level: f"noise {level:g}" for level in sorted({*LEVELS, *FINER["arcene"]})}
SIGMAS = {name: f"σ = {level:g}" for level, name in NAMES.items()}
NO_NOISE, MUCH = "no noise", NAMES[LEVELS[-1]]
MODERATE = {"a9a": 10.0, LIKE_GISETTE: 1.0, "arcene": 0.3}  # the smallest level that raises the loss by 5 %
ALONE, ALL = "first party alone", "all columns in one place"
SHOWN = (NO_NOISE, *NAMES.values(), ALONE, ALL)
LATER, TIMES = "no noise, 10 times the epochs", 10  # to tell what is due to stopping
FAST, FAST_RHO = ", ρ/2L = 0.01", 0.01  # to tell what is due to ρ


def _lower(method: str, than: str) -> Rule:
    return lowest("test_loss", "method", method, where={"method": [method, than]}, paired="draw")


def _claims(data: str) -> tuple[Claim, ...]:
    level = MODERATE[data]
    return (
        Claim(
            "columns of others make the first party's model better",
            "lower loss without noise than alone",
            _lower(NO_NOISE, ALONE),
        ),
        Claim(
            f"moderate noise (here σ = {level:g}) still leaves it better than alone",
            "lower loss",
            _lower(NAMES[level], ALONE),
        ),
        Claim(
            f"under moderate noise (here σ = {level:g}) it still converges in few epochs",
            "few; to 5 % after at most 10, as we read it",
            few_epochs(FEW, NEAR, method=NAMES[level]),
        ),
        Claim("too much noise ruins the model", "higher loss than alone", _lower(ALONE, MUCH)),
    )


LIMIT = Claim(
    "sharing comes to the model of all columns in one place",
    "drawn in Figure 3(a); to 0.001, as we read it",
    alike("test_loss", "method", 0.001, where={"method": [NO_NOISE, ALL]}),
)
BETTER = Claim(
    "on wide data ADMM sharing is better than scikit-learn on all columns",
    "lower loss (gisette)",
    _lower(NO_NOISE, ALL),
)


def noisy(method: str, level: float, draw: int, data: str, epochs: int, runs: int) -> Columns:
    """ADMM sharing with and without noise, or a model in one place."""
    if method in (ALONE, ALL):
        return in_one_place(data, draw, method == ALONE, epochs)
    if method == LATER:
        later = Table.of(trained(data, draw, TIMES * epochs, step=RHO[data]))
        kept = later.rows(later["epoch"] % TIMES == 0)
        return {**kept.columns, "epoch": kept["epoch"] / TIMES}
    rho = FAST_RHO if method.endswith(FAST) else RHO[data]
    return trained(data, draw, epochs, step=rho, level=level, runs=runs if level else 1)


def _levels(draws: int, *levels: float, more: Mapping[str, float] = MappingProxyType({})) -> list[Setting]:
    names = {NO_NOISE: 0.0, **{NAMES[level]: level for level in levels}, ALONE: 0.0, ALL: 0.0, **more}
    return [{"method": name, "level": level, "draw": draw} for draw in range(draws) for name, level in names.items()]


def _claimed(table: Table) -> str:
    """What Theorem 3 would call the levels; where the loss ends, and how soon it is there."""
    rows, best = [], mean(table.where(method=NO_NOISE).at_end(), "test_loss").value
    for (method,), part in table.each("method"):
        level, first = part["level"][0], part.where(draw=0)
        claimed = f"{first['epsilon'][0]:.3g}" if level else "–"
        times = {ALONE: 0, ALL: 0, LATER: TIMES}.get(str(method), 1)
        found = [epochs_needed(rows, NEAR) for rows in (part, Table.of({**part.columns, "draw": 0}))]
        within = [", ".join(str(times * epochs) for epochs in one) if times else "–" for one in found]
        loss = mean(part.at_end(), "test_loss").value
        rows.append([method, claimed, f"{loss:.4g} ({loss / best - 1:+.0%})", *within])
    headings = ["σ", "eps of a round by Theorem 3 (not true)", "test loss at the end (above that without noise)"]
    headings += [f"epochs to 5 % of that, {of}" for of in ("each draw", "mean of all draws")]
    return markdown_table(headings, rows) + "\n"


def _noise(data: str, figure: str, claim: Claim, more: Mapping[str, float] = MappingProxyType({})) -> Experiment:
    """`more`: runs that tell why, and their levels."""
    levels = _levels(DRAWS, *sorted({*LEVELS, *FINER.get(data, ())}), more=more)
    sizes = {"data": data, "epochs": 20, "runs": 3}
    return Experiment(
        f"admm-sharing-noise-{_name(data)}",
        f"{figure}, {_shown(data)}: test loss under noise, and of models in one place",
        Sweep(noisy, levels, _levels(1, LEVELS[0]), sizes, {"epochs": 2, "runs": 1}),
        _counted(data, *_claims(data), claim),
        [Panel("test_loss", "epoch", ("method",), {"method": [*SHOWN]}, log="y", grey=(ALONE, ALL), names=SIGMAS)],
        needs=() if data == LIKE_GISETTE else (data,),
        summary=_claimed,
    )


NOISES = (
    _noise("a9a", "Figures 1(b) and 3(a)", LIMIT),
    _noise(LIKE_GISETTE, "Figures 2(b) and 3(b)", BETTER, {LATER: 0.0, NO_NOISE + FAST: 0.0, NAMES[1.0] + FAST: 1.0}),
    _noise("arcene", "Figures 2(b) and 3(b)", BETTER),
)
EXPERIMENTS = (A9A, GISETTE, ARCENE, *NOISES)
