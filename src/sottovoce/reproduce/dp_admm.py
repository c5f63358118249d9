"""DP-ADMM (Huang et al. 2020), section VI: number of sources, convergence over eps and delta, accuracy, time.

Adult in 104 columns, 40 000 rows for training, t = 100, rho = 0.1, each client's share of the regulariser 1e-6. The
paper runs each simulation 10 times; it does not say which eps and delta stay fixed while the other changes, nor the
numbers of sources: here eps = 0.1, delta = 1e-3, and 1 to 400 sources.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import ADMM, DPSGD, DVP, PVP
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.experiment.optimum import optimum
from sottovoce.problems.rows import Rows
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Kind, Panel, Sweep, Table, Value, every
from sottovoce.reproduce.trials import Watch, federation, trained
from sottovoce.reproduce.verdicts import Rule, alike, falls, highest, lowest, near, rises

RHO, EPSILON, DELTA = 0.1, 0.1, 1e-3
GOALS = {norm: sv.Objective(sv.Logistic(), penalty) for norm, penalty in (("l1", sv.L1(1e-6)), ("l2", sv.L2(1e-6)))}
C_W = {"l1": 23.0, "l2": 89.0}  # |w*| as the paper gives it
FAMILY: Mapping[str, Method] = {"ADMM": ADMM(rho=RHO), "PVP": PVP(rho=RHO), "DVP": DVP(rho=RHO)}
RIVALS = {"l1": ("DPSGD",), "l2": ("DPSGD", "PVP", "DVP")}  # PVP and DVP are for l2 only
ACCURACY, OWN = "test_accuracy", "own_accuracy"  # of the global model, and of the clients' own: the mean
FIGURES = {"l1": ("1", "2", "3"), "l2": ("4", "5", "6")}


class Averages(Watch):
    """The augmented objective Σ f_i(w̄_i) + ρ|w̄_i − w̄| at averages over the rounds."""

    def __init__(self, rows: Rows, objective: sv.Objective, algorithm: Method) -> None:
        super().__init__(rows, objective, algorithm)
        self.total, self.total_i = np.zeros(()), np.zeros(())

    def note(self, checkpoint: Checkpoint) -> None:
        self.total = self.total + self.algorithm.model(checkpoint.server)
        self.total_i = self.total_i + checkpoint.clients["client.w"]

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        w, w_i = self.total / checkpoint.k, self.total_i / checkpoint.k
        f = self.rows.value(w_i) + self.objective.penalty.value(w_i)
        return {"augmented": (f + RHO * np.linalg.norm(w_i - w, axis=-1)).sum(axis=-1)}


class OwnLoss(Watch):
    """The paper's empirical loss: that of each client's own model."""

    def models(self, checkpoint: Checkpoint) -> np.ndarray:
        return checkpoint.clients.get("client.w", self.algorithm.model(checkpoint.server))

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        return {"empirical_loss": self.rows.value(self.models(checkpoint)).mean(axis=-1)}


class OwnModels(OwnLoss):
    """And their accuracy on the test rows of the first draw, with the share of the larger class there."""

    def measure(self, checkpoint: Checkpoint) -> dict[str, np.ndarray]:
        X, y = federation(clients=100)[1]
        right = np.sign(self.models(checkpoint) @ X.T) == np.sign(y)
        return super().measure(checkpoint) | {
            OWN: right.mean(axis=(-2, -1)),
            "larger_class": max(np.mean(y > 0), np.mean(y < 0)),
        }


METHODS: Mapping[str, Method] = {"DPSGD": DPSGD(step=0.1), **FAMILY}


def trial(
    norm: str,
    rounds: int = 100,
    trials: int = 10,
    method: str = "DP-ADMM",
    epsilon: float = EPSILON,
    delta: float = DELTA,
    clients: int = 100,
    varied: str = "",  # a label only
    draw: int = 0,
    **options: Any,
) -> Columns:
    """Trials in the paper's setting; one, without privacy, of a method that has no published noise."""
    ours = method == "DP-ADMM"
    algorithm = sv.DPADMM(rho=RHO, c_w=C_W[norm]) if ours else METHODS[method]
    private = "published" in algorithm.modes
    privacy, trials = (sv.Published(epsilon, delta), trials) if private else (sv.NoPrivacy(), 1)
    at_once = 5 if method in FAMILY else 10  # where arg-mins are solved, all wait for the one that takes longest
    options = {"at_once": at_once, "data": {"clients": clients, "draw": draw}, **options}
    return trained(algorithm, GOALS[norm], privacy, rounds, trials, **options)


QUICK = {"rounds": 20, "every": 20, "trials": 8}


# --------------------------------------------------------------------------------------------- Figures 1 and 4: sources

ALL = "all rows in one place"  # the paper's non-private, centralised approach


def sources(norm: str, clients: int, draw: int, method: str, **options: Any) -> Columns:
    """Of DP-ADMM; or of the optimum, whose one trial stands in the last round."""
    if method != ALL:
        return trial(norm, clients=clients, draw=draw, **options)
    owned, test = federation(clients=clients, draw=draw)
    found = optimum(owned, GOALS[norm], test)[1]
    return {"round": options.get("rounds", 100), "run": 0, **{name: found[name] for name in (ACCURACY, "objective")}}


def _sources(norm: str) -> Experiment:
    numbers = every(method=("DP-ADMM",), draw=(0,), clients=(1, 10, 50, 100, 200, 400))
    draws = every(method=("DP-ADMM", ALL), draw=(1, 2, 3, 4), clients=(1,))
    few = every(method=("DP-ADMM",), draw=(0,), clients=(10, 400)) + every(method=(ALL,), draw=(0,), clients=(1,))
    first, one_place = {"draw": 0, "method": "DP-ADMM"}, {"draw": [1, 2, 3, 4], "clients": 1}
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][0]}",
        f"Figure {FIGURES[norm][0]}: accuracy and number of data sources ({norm})",
        Sweep(sources, numbers + draws, few, {"norm": norm}, QUICK),
        [
            Claim(
                "with more sources the model is less accurate",
                "accuracy falls with n",
                falls(ACCURACY, "clients", where=first),
            ),
            Claim(
                "with more sources the loss is larger",
                "loss rises with n",
                rises("objective", "clients", where=first),
                robust=True,
            ),
            Claim(
                "the non-private, centralised model is more accurate than that of a single source",
                "the highest accuracy",
                highest(ACCURACY, "method", ALL, where=one_place, paired="draw"),
            ),
        ],
        [Panel(y, lines=("clients",), where=first, references=_in_one_place(y)) for y in (ACCURACY, "objective")],
    )


def _in_one_place(y: str) -> Callable[[Table], dict[str, float]]:
    return lambda table: {f"{ALL}, no noise": float(np.mean(table.where(method=ALL)[y]))}


# ----------------------------------------------------------------------------------------- Figures 2 and 5: convergence


def _varied(values: Mapping[str, Sequence[float]]) -> list[dict[str, Value]]:
    base = {"epsilon": EPSILON, "delta": DELTA}
    return [{"varied": name, **base, name: value} for name, each in values.items() for value in each]


VALUES = {"epsilon": (0.01, 0.05, 0.1, 0.2), "delta": (1e-6, 1e-5, 1e-4, 1e-3)}  # all that the paper names


def _convergence(norm: str) -> Experiment:
    few = {name: each[::3] for name, each in VALUES.items()}
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][1]}",
        f"Figure {FIGURES[norm][1]}: convergence over eps and delta ({norm})",
        Sweep(
            trial, _varied(VALUES), _varied(few), {"norm": norm, "watch": Averages, "columns": ("objective",)}, QUICK
        ),
        [
            Claim(
                f"a larger {word} converges better",
                f"augmented objective falls with {word}",
                falls("augmented", name, where={"varied": name}),
                robust=name == "epsilon",
            )
            for word, name in (("eps", "epsilon"), ("delta", "delta"))
        ],
        [
            Panel(
                "augmented", lines=(name,), where={"varied": name}, title=fixed, log="y", ylabel="augmented objective"
            )
            for name, fixed in (("epsilon", "delta = 1e-3"), ("delta", "eps = 0.1"))
        ],
    )


# --------------------------------------------------------------------------------------- Figures 3 and 6: other methods


def _tradeoff(y: str, what: str, rule: Callable[..., Rule], **options: Any) -> list[Claim]:
    """Whether `y` gets better with eps, and with delta."""
    return [
        Claim(
            f"a larger {word} gives DP-ADMM {what}",
            f"{rule.__name__} with {word}",
            rule(y, name, where={"method": "DP-ADMM", "varied": ["epsilon", name]} | fixed),
            **options,
        )
        for word, name, fixed in (("eps", "epsilon", {"delta": DELTA}), ("delta", "delta", {"epsilon": EPSILON}))
    ]


RESILIENT = Claim(
    "DPSGD has good noise resilience",
    "the loss is alike at every eps; to 5 %, as we read it",
    alike("empirical_loss", "epsilon", 0.05, relative=True, where={"varied": "epsilon", "method": "DPSGD"}),
)


COMPARED: Sequence[tuple[str, str, Callable[..., Rule], Kind]] = (
    ("DP-ADMM has a smaller empirical loss than", "empirical_loss", lowest, "measured"),
    ("DP-ADMM's global model is more accurate than that of", ACCURACY, highest, "measured"),
    ("the clients' own models are more accurate with DP-ADMM than with", OWN, highest, "conjecture"),
)


def _beats(epsilon: float, others: Sequence[str]) -> list[Claim]:
    """Whether DP-ADMM is the best at this eps: by loss, and by whosever accuracy."""
    where = {"varied": "epsilon", "epsilon": epsilon, "method": ["DP-ADMM", *others]}
    return [
        Claim(
            f"{says} {', '.join(others)} (eps = {epsilon:g})",
            f"DP-ADMM {rule.__name__}",
            rule(y, "method", "DP-ADMM", where=where),
            robust=rule is lowest and epsilon == EPSILON and len(others) > 1,
            kind=kind,
        )
        for says, y, rule, kind in COMPARED
    ]


_ADMM_FAMILY = {"varied": "epsilon", "method": ["DP-ADMM", "PVP", "DVP"]}
POOR = Claim(
    "ADMM is sensitive to noise: PVP and DVP have poor performance",
    "larger loss than DP-ADMM, at every eps",
    lowest("empirical_loss", "method", "DP-ADMM", where=_ADMM_FAMILY, each=("epsilon",)),
)


def _accuracy(norm: str) -> Experiment:
    sizes: Json = {"norm": norm, "watch": OwnModels, "columns": (ACCURACY,), "every": 10}
    others, plain = RIVALS[norm], [{"method": "ADMM", "epsilon": 0.0, "delta": DELTA, "varied": "epsilon"}]
    by_epsilon = every(varied=("epsilon",), method=others, delta=(DELTA,), epsilon=VALUES["epsilon"])
    ours = [{"method": "DP-ADMM", **setting} for setting in _varied(VALUES) if setting != _varied(VALUES)[-1]]
    few = [setting for setting in ours + by_epsilon if setting["epsilon"] == 0.1 and setting["delta"] == DELTA]
    shown = {"where": {"varied": "epsilon", "epsilon": [0.0, 0.1]}, "title": "eps = 0.1"}
    by_eps = {"varied": "epsilon", "method": ["DP-ADMM", *others]}
    ends: Json = {"where": by_eps, "title": "at the end", "xlabel": "eps", "at_end": True, "lines": ("method",)}
    return Experiment(
        f"dp-admm-figure-{FIGURES[norm][2]}",
        f"Figure {FIGURES[norm][2]}: loss and error against other methods ({norm})",
        Sweep(trial, [*plain, *ours, *by_epsilon], [*plain, *few], sizes, QUICK | {"rounds": 4, "every": 4}),
        [
            *(claim for epsilon in VALUES["epsilon"] for claim in _beats(epsilon, others)),
            *([POOR] if "PVP" in others else []),
            RESILIENT,
            *_tradeoff("empirical_loss", "a smaller loss", falls),
            *_tradeoff(ACCURACY, "a more accurate global model", rises),
            *_tradeoff(OWN, "more accurate clients' models", rises, kind="conjecture"),
        ],
        [
            Panel("empirical_loss", lines=("method",), log="y", **shown),
            Panel(ACCURACY, lines=("method",), ylabel="test accuracy, global model", **shown),
            Panel(OWN, lines=("method",), ylabel="test accuracy, clients' own models", **shown),
            Panel("empirical_loss", "epsilon", log="xy", **ends),
            *(Panel(y, "epsilon", log="x", **ends) for y in (ACCURACY, OWN)),
        ],
    )


# ------------------------------------------------------------------------------------ Figures 3 and 6: the first rounds


def _speed(norm: str) -> Experiment:
    methods = ("ADMM", "DP-ADMM", *RIVALS[norm])
    settings, few = every(method=methods, draw=(0, 1, 2)), every(method=methods, draw=(0,))
    sizes: Json = {"norm": norm, "rounds": 10, "trials": 2, "every": 2, "watch": OwnLoss, "columns": (ACCURACY,)}
    lowest_after = partial(lowest, "empirical_loss", "method", paired="draw")
    return Experiment(
        f"dp-admm-speed-{norm}",
        f"Figure {FIGURES[norm][2]}: the first ten rounds ({norm})",
        Sweep(trial, settings, few, sizes, {"rounds": 2}),
        [
            Claim("ADMM without noise converges fastest", "lowest loss, here after 10 rounds", lowest_after("ADMM")),
            Claim(
                "DPSGD converges slowly: DP-ADMM is faster",
                "lower loss, here after 10 rounds",
                lowest_after("DP-ADMM", where={"method": ["DP-ADMM", "DPSGD"]}),
            ),
        ],
        [Panel("empirical_loss", lines=("method",), log="y", title="eps = 0.1")],
    )


# ------------------------------------------------------------------------------------------------------- Table II: time


def seconds(epsilon: float, rounds: int, repeats: int) -> Columns:
    """CPU time of the ADMM family, in turns, as multiples of DP-ADMM's."""
    rows, _ = federation(clients=100)
    methods = {"DP-ADMM": sv.DPADMM(rho=RHO, c_w=C_W["l2"]), **FAMILY}
    taken: list[dict[str, float]] = []
    for times in (1, *[rounds] * repeats):  # the first compiles
        taken.append({})
        for name, method in methods.items():
            privacy = sv.NoPrivacy() if name == "ADMM" else sv.Published(epsilon, DELTA)
            begun = time.process_time()
            sv.train(method, rows, GOALS["l2"], rounds=times, privacy=privacy, seed=0, record_every=times)
            taken[-1][name] = time.process_time() - begun
    named = [(name, number, one[name] / one["DP-ADMM"]) for number, one in enumerate(taken[1:]) for name in methods]
    return dict(zip(("method", "run", "times_dp_admm"), zip(*named, strict=True), strict=True))


TIMES = {  # ADMM, PVP and DVP as multiples of DP-ADMM, for each eps
    0.01: (67.242 / 6.937, 102.282 / 6.937, 59.743 / 6.937),
    0.05: (67.242 / 5.322, 78.798 / 5.322, 65.935 / 5.322),
    0.1: (67.242 / 5.218, 79.013 / 5.218, 69.855 / 5.218),
}
SLOW = ("ADMM", "PVP", "DVP")
BY_METHOD = {name: {epsilon: row[at] for epsilon, row in TIMES.items()} for at, name in enumerate(SLOW)}
PAPERS_TIMES = {(epsilon, name): one for epsilon, row in TIMES.items() for name, one in zip(SLOW, row, strict=True)}


def _of_admm(table: Table) -> Table:
    """The time of PVP over that of ADMM, run by run."""
    pvp, admm = (table.where(method=name) for name in ("PVP", "ADMM"))
    return Table({**pvp.columns, "times_admm": pvp["times_dp_admm"] / admm["times_dp_admm"]})


TABLE_II = Experiment(
    "dp-admm-table-2",
    "Table II: time of ADMM, PVP and DVP as multiples of DP-ADMM's",
    Sweep(
        seconds,
        every(epsilon=TIMES),
        every(epsilon=(0.1,)),
        {"rounds": 10, "repeats": 8},
        {"rounds": 2, "repeats": 2},
        alone=True,
    ),
    [
        Claim(
            "DP-ADMM takes much less time than ADMM, PVP and DVP",
            "9 to 15 times less; to a factor of 2, as we read it",
            near("times_dp_admm", ("epsilon", "method"), PAPERS_TIMES, 2.0, where={"method": SLOW}),
        ),
        Claim(
            "PVP takes more time than ADMM",
            "1.2 to 1.5 times; to a factor of 1.25, as we read it",
            near("times_admm", "epsilon", {eps: row[1] / row[0] for eps, row in TIMES.items()}, 1.25, of=_of_admm),
        ),
    ],
    [Panel("times_dp_admm", "epsilon", ("method",), log="xy", ylabel="time, DP-ADMM = 1", paper=BY_METHOD)],
)
EXPERIMENTS = (*(make(norm) for norm in ("l1", "l2") for make in (_sources, _convergence, _accuracy, _speed)), TABLE_II)
