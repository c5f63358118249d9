"""FedSPD-DP (Li et al. 2022), section V: total privacy loss, K and Q (Figures 2 to 4), and other readings of the text.

All 32 561 + 16 281 rows of Adult, N = 100 clients, T = 100, rho = 20, l1 of weight 0.01, delta = 1e-4. G = 1 goes into
(20) and (35), and nothing is clipped: clipping is what the paper says DP-SGD loses by. It gives neither its encoding
(162 parameters: 81 columns, two classes), nor what "normalized" is, nor the four values in each figure, nor how many
trials. Two readings are run in all figures:

    FITTED    every column standardised, and an intercept (164 parameters): among `READINGS` the figures fit it best
    LITERAL   the same without the intercept: 162 parameters, as printed

Both were chosen because they fit, so that all that holds in them is a conjecture about what the authors did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedSPDDP
from sottovoce.algorithms.fedspd_dp import Client, Down, Up
from sottovoce.core.contract import Array, Method, Site
from sottovoce.core.participation import KOfN
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.problems import partition
from sottovoce.problems.data.uci_adult import TRAINING
from sottovoce.problems.rows import Rows
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Kind, Panel, Sweep, Table, Value, every
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.measures import over_rounds, rounds_until
from sottovoce.reproduce.trials import Split, Watch, encoded, trained
from sottovoce.reproduce.verdicts import Rule, declines, falls, highest, lowest, rises

CLIENTS, ROUNDS, DELTA, BATCH, RHO, BOUND = 100, 100, 1e-4, 10, 20.0, 1.0
L1 = 0.01 / CLIENTS  # (34) has the sum over clients, here it is the mean
GOAL = sv.Objective(sv.Softmax(2), penalty=sv.L1(L1))
SIZE = TRAINING // CLIENTS + 1  # records of a client
LITERAL, FITTED = "standardised", "standardised, intercept"
ACCURACY = "test_accuracy"
CHOSEN: Kind = "conjecture"  # all claims: both readings were chosen because they fit

# ------------------------------------------------------------------------------------------------ rows, in each reading


def _scaled(Z: np.ndarray) -> np.ndarray:
    """Columns to [0, 1]; the same whatever they were divided by and moved by before."""
    low, high = Z.min(axis=0), Z.max(axis=0)
    return (Z - low) / (high - low)


def _numbers_only(Z: np.ndarray) -> np.ndarray:
    """Columns of two values back to 0 and 1."""
    two = np.array([len(np.unique(column)) == 2 for column in Z.T])
    return np.where(two, _scaled(Z), Z)


def _with_intercept(Z: np.ndarray) -> np.ndarray:
    return np.hstack([Z, np.ones((len(Z), 1))])


def _to_length_1(Z: np.ndarray, axis: int) -> np.ndarray:
    return Z / np.linalg.norm(Z, axis=axis, keepdims=True)


FROM_THE_MODEL, CLIPPED, SUMMED, NO_TERM, HEAVIER = (
    f"{FITTED}, {changed}"
    for changed in (
        "steps from x_0", "records clipped to 1", "cost summed over records", "(35) without its noise term",
        "l1 of weight 0.01 for each client",
    )
)  # fmt: skip
READINGS = {
    FITTED: _with_intercept,
    LITERAL: np.asarray,
    "numbers standardised, 0/1 kept": _numbers_only,
    "columns to [0, 1]": _scaled,
    "columns to [-1, 1]": lambda Z: 2 * _scaled(Z) - 1,
    "columns to [0, 1], rows to length 1": lambda Z: _to_length_1(_scaled(Z), 1),
    "columns to [0, 1], then to length 1": lambda Z: _to_length_1(_scaled(Z), 0),
    "standardised, rows to length 1": lambda Z: _to_length_1(Z, 1),
    **dict.fromkeys((CLIPPED, FROM_THE_MODEL, SUMMED, NO_TERM, HEAVIER), _with_intercept),
}


@lru_cache(maxsize=2)
def data(reading: str, first: int = CLIENTS) -> Split:
    """Training rows of the first of 100 clients, and the official test rows."""
    adult = encoded("classes")
    X, y = READINGS[reading](adult.X), adult.y
    groups = partition.make("iid", y[:TRAINING], CLIENTS, seed=0)
    kept = groups < first
    owned = sv.Federation.from_arrays(X[:TRAINING][kept], y[:TRAINING][kept], groups[kept])
    return owned, (X[TRAINING:], y[TRAINING:])


# ---------------------------------------------------------------------------------- Figures 2 to 4: total loss, K and Q


class Lagrangian(Watch):
    """The augmented Lagrangian value (5) with x_i the average of a client's last round, (13b), which line 16 shows."""

    def __init__(self, rows: Rows, objective: sv.Objective, algorithm: Method) -> None:
        super().__init__(rows, objective, algorithm)
        self.lam, self.mean, self.x_0 = np.zeros(()), np.zeros(()), np.zeros(())

    def note(self, checkpoint: Checkpoint) -> None:
        lam = checkpoint.clients["client.lam"]
        took_part = (lam != self.lam).any(axis=-1, keepdims=True)
        self.mean = np.where(took_part, self.x_0 - (lam - self.lam) / RHO, self.mean)  # line 16
        self.lam, self.x_0 = lam.copy(), checkpoint.server.y.mean(axis=-2, keepdims=True)

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        x, away = self.mean, self.mean - self.x_0
        value = self.rows.value(x) + self.objective.penalty.value(x)
        alfv = value - (self.lam * away).sum(axis=-1) + RHO / 2 * np.square(away).sum(axis=-1)
        return {"alfv": alfv.sum(axis=-1)}


# Like that of FedEPM in `fedepm_trials.py`. A method's name is in the key of its noise: another one, other numbers.
class FromTheModel(FedSPDDP):
    """Not the paper's line 9: local steps start at the broadcast model, as FedAvg's do."""

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        here = np.broadcast_to(down.x, state.x.shape)
        return super().client(replace(state, x=here), down, site)


class NoTerm(FedSPDDP):
    """Not the paper's: noise as printed, and steps as if there were none."""

    def inverse_step(self, site: Site) -> Array | float:
        return super().inverse_step(replace(site, claim=None))


CHANGED: Mapping[str, Json] = {  # what is not as in the other readings
    FROM_THE_MODEL: {"kind": FromTheModel},
    NO_TERM: {"kind": NoTerm},
    SUMMED: {"goal": replace(GOAL, scale="sum"), "bound": {"assume": BOUND / SIZE}},
    HEAVIER: {"goal": replace(GOAL, penalty=sv.L1(CLIENTS * L1))},
    CLIPPED: {"bound": {"clip": BOUND}},
}


def fedspd(K: int, Q: int, kind: type[FedSPDDP] = FedSPDDP) -> FedSPDDP:
    return kind(rho=RHO, local_steps=Q, batch=BATCH, client_rate=K / CLIENTS)


def trial(
    reading: str, rounds: int, trials: int, total: float = 1.0, K: int = 20, Q: int = 5, kind: type[FedSPDDP] = FedSPDDP
) -> Columns:
    """Trials in the paper's setting, with `total` as the total privacy loss that it claims."""
    used: Json = {"kind": kind, "goal": GOAL, "bound": {"assume": BOUND}} | CHANGED.get(reading, {})
    rows, method = data(reading), fedspd(K, Q, used["kind"])
    epsilon = method.epsilon_of_round(total, ROUNDS, rows[0].sizes)  # (36)
    options: Json = {"participation": KOfN(K), "watch": Lagrangian, "columns": (ACCURACY,), "data": rows, "at_once": 4}
    found = trained(method, used["goal"], sv.Published(epsilon, DELTA, **used["bound"]), rounds, trials, **options)
    return {**found, "epsilon": epsilon}


BOTH = (FITTED, LITERAL)
FULL, FEWER, QUICK = ({"rounds": rounds, "trials": trials} for rounds, trials in ((ROUNDS, 8), (ROUNDS, 4), (10, 2)))


def both(
    says: str, paper: str, rule: Any, *arguments: Any, where: Json | None = None, kind: Kind = CHOSEN, **which: Any
) -> list[Claim]:
    """The claim in both readings."""

    def measure(reading: str) -> Rule:
        return rule(*arguments, where={"reading": reading, **(where or {})}, **which)

    return [Claim(f"{says} ({reading})", paper, measure(reading), kind=kind) for reading in BOTH]


def curves(by: str, note: str = "", **where: Value) -> list[Panel]:
    """Accuracy and ALFV over the rounds, in both readings."""
    return [
        Panel(y, lines=(by,), where={"reading": reading, **where}, title=reading + note, ylabel=label)
        for reading in BOTH
        for y, label in ((ACCURACY, "test accuracy"), ("alfv", "ALFV"))
    ]


def _figure(
    number: int, by: str, shows: str, values: Sequence[Value], claims: Sequence[Claim], **fixed: float
) -> Experiment:
    settings, few = (every(reading=BOTH, **{by: tried}) for tried in (values, (values[0], values[-1])))
    return Experiment(
        f"fedspd-dp-figure-{number}",
        f"Figure {number}: accuracy and ALFV for four {shows}",
        Sweep(trial, settings, few, FULL | fixed, QUICK),
        claims,
        curves(by),
    )


FIGURE_2 = _figure(
    2,
    "total",
    "total privacy losses",
    (0.5, 1.0, 3.0, 10.0),
    [
        *both("a larger total privacy loss gives a better accuracy", "rises", rises, ACCURACY, "total"),
        *both("ALFV decreases over the rounds", "decreases", declines, "alfv", each=("total",)),
    ],
)


def _speed(y: str, name: str, rule: Any, best: Any) -> list[Claim]:
    """Whether more clients a round are faster, and all of them the fastest: by the mean over the rounds."""
    which: Json = {"of": over_rounds(y, "reading", "K")}
    more, some = "more clients a round, faster convergence of", "some of the clients are slower than all of them"
    trend, end = (f"{what} (mean over the rounds)" for what in (f"{rule.__name__} with K", f"K = 100 {best.__name__}"))
    return [
        *both(f"{more} {name}", trend, rule, y, "K", **which),
        *both(f"{some} ({name.removeprefix('the ')})", end, best, y, "K", 100, **which),
    ]


FIGURE_3 = _figure(
    3,
    "K",
    "numbers of clients a round",
    (10, 20, 50, 100),
    [*_speed(ACCURACY, "the accuracy", rises, highest), *_speed("alfv", "ALFV", falls, lowest)],
)


NEARLY = 0.98


def _all_get_there(table: Table) -> float:
    """A little less than the accuracy that every Q has at the end in the mean: half of the runs of the worst end below
    that mean."""
    return NEARLY * min(one.value for one in means(table.at_end(), ACCURACY, "Q").values())


def _rounds_needed(table: Table) -> Table:
    """Rounds to that accuracy, in each reading."""
    parts = [rounds_until(ACCURACY, _all_get_there, "reading", "Q")(rows) for _, rows in table.each("reading")]
    return Table({name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns})


FIGURE_4 = _figure(
    4,
    "Q",
    "numbers of local steps",
    (2, 5, 10, 20),
    [
        *both("more local steps, better accuracy", "rises with Q", rises, ACCURACY, "Q"),
        *both("more local steps, smaller ALFV", "falls with Q", falls, "alfv", "Q"),
        *both(
            "more local steps, fewer rounds to an accuracy",
            "falls with Q (to 0.98 of the least accuracy at the end)", falls, "rounds", "Q", of=_rounds_needed,
        ),
    ],
    total=3.0,
    K=10,
)  # fmt: skip

# ----------------------------------------------------------------------------------------------------- the readings


def _readings(table: Table) -> str:
    """Accuracy and ALFV at the end, by reading and total."""
    totals = sorted(set(table["total"].tolist()))
    rows = []
    for (reading,), part in table.each("reading"):
        ends = part.at_end()
        accuracy = means(ends, ACCURACY, "total")
        drops = [declines("alfv")(part.where(total=total)).same for total in totals]
        steps = [f"{accuracy[total].value:.4f} ± {accuracy[total].error:.4f}" for total in totals]
        rows.append([reading, *steps, f"{sum(map(bool, drops))} of {len(totals)}"])
    headings = ["reading", *(f"total {total:g}" for total in totals), "ALFV decreases at"]
    return f"Test accuracy after 100 rounds:\n\n{markdown_table(headings, rows)}\n"


_OTHERS = [name for name in READINGS if name not in BOTH]
READINGS_TRIED = Experiment(
    "fedspd-dp-readings",
    "Figure 2 in other readings: what is normalised, and what the text does not have",
    Sweep(
        trial,
        every(reading=_OTHERS, total=(0.5, 10.0)),
        every(reading=("columns to [0, 1]", FROM_THE_MODEL), total=(0.5, 10.0)),
        FEWER,
        QUICK,
    ),
    [
        Claim(
            f"a larger total privacy loss gives a better accuracy ({reading})",
            "rises",
            rises(ACCURACY, "total", where={"reading": reading}),
            kind="ours",
        )
        for reading in _OTHERS
    ],
    [
        Panel(
            ACCURACY, "total", ("reading",), {"reading": shown}, title, log="x", at_end=True, marks=True,
            xlabel="claimed total ε", ylabel="last accuracy",
        )
        for title, shown in (
            ("what is normalised", [name for name in READINGS if not name.startswith(FITTED) and name != LITERAL]),
            ("not in the text", [name for name in READINGS if name.startswith(f"{FITTED}, ")]),
        )
    ],
    summary=_readings,
)  # fmt: skip


EXPERIMENTS = (FIGURE_2, FIGURE_3, FIGURE_4, READINGS_TRIED)
