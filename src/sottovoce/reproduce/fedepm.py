"""FedEPM (Zhou and Li 2022), section VII: objective, rounds, time and signal-to-noise ratio over k0, rho and eps.

What is run is in `fedepm_trials.py`. Every trial has a partition of its own; all methods are run on the same ones, so
that differences are taken partition by partition.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Cell, Claim, Experiment, Panel, Setting, Sweep, Table, every
from sottovoce.reproduce.fedepm_trials import FIXED, FRESH, METHODS, NOT_RISEN, local_time, run
from sottovoce.reproduce.verdicts import Rule, alike, falls, highest, lowest, near, rises

TRIALS, RIVALS_TRIALS, FEW = 100, 20, 10  # of FedEPM; of others, which cost far more; in Figure 2 and Table I


def _partition(table: Table) -> np.ndarray:
    return table["partition"]


def _trials(table: Table) -> str:
    """On how many partitions each method was run."""
    counts = "; ".join(f"{method}: {len(np.unique(rows['partition']))}" for (method,), rows in table.each("method"))
    return f"Trials: {counts}.\n"


# ------------------------------------------------------------------------------------------------------------- Figure 2


PLAIN = {"share": (0.5,), "epsilon": (0.1,)}
TRACE = {"trace": True}
FIGURE_2 = Experiment(
    "fedepm-figure-2",
    "Figure 2: objective over communication rounds",
    Sweep(
        run,
        every(m=(50, 100), k0=(4, 12, 20), method=METHODS, **PLAIN),
        every(m=(50,), k0=(4,), method=METHODS, **PLAIN),
        {"partitions": FEW, "last": 60, **TRACE},
        {"partitions": 4, "last": 10, **TRACE},
    ),
    [
        Claim(
            "FedEPM declines the fastest",
            "FedEPM lowest (after 10 rounds)",
            lowest("objective", "method", "FedEPM", where={"round": 10.0}, each=("m", "k0"), paired=_partition),
            robust=True,
        ),
    ],
    [
        Panel(
            "objective",
            lines=("method",),
            where={"m": m, "k0": k0},
            title=f"m = {m}, $k_0$ = {k0}",
            xlabel="communication rounds",
            ylabel="f(w)/m",
        )
        for m in (50, 100)
        for k0 in (4, 12, 20)
    ],
    summary=_trials,
)

# ------------------------------------------------------------------------------------------------------ Figures 3 to 5

MEASURES = {"CR": "rounds", "TCT": "time"}
LABELS = {"CR": "communication rounds", "TCT": "CPU seconds", "SNR": "log10 of signal to noise"}


VALUES = {"k0": (4, 8, 12, 16, 20), "share": (0.2, 0.4, 0.6, 0.8, 1.0), "epsilon": (0.1, 0.3, 0.5, 0.7, 0.9)}
THREE = {"method": METHODS}


def _cell(setting: Setting, quick: bool) -> Cell:
    ours = setting["method"] == "FedEPM"
    if quick:
        return Cell(setting, run, {"partitions": 2, "last": 40 if ours else 4})
    return Cell(setting, run, {"partitions": TRIALS if ours else RIVALS_TRIALS})


def _over(quick: bool, name: str, numbers: Sequence[int] = (50,), **others: Sequence[float]) -> list[Cell]:
    """All three methods, m of `numbers` and the values of the paper (quick: the first two); all else is as there.
    And `others`: methods that are not the paper's, with the values for which they are run."""
    values = VALUES[name][:2] if quick else VALUES[name]
    axes = {"k0": (12,), **PLAIN, "m": numbers[:1] if quick else numbers}
    settings = every(**axes | {name: values}, method=METHODS)
    for method, tried in others.items():
        settings += every(**axes | {name: tried[:2] if quick else tried}, method=(method,))
    return [_cell(setting, quick) for setting in settings]


def _trends(says: str, paper: str, rule: Any, *arguments: Any, each: Sequence[str] = (), **more: Any) -> list[Claim]:
    """What the paper says of all three methods, for each of them."""

    def of(method: str) -> Rule:
        where = {"method": method}
        return rule(*arguments, where=where, paired=_partition, **({"each": each} if each else {}), **more)

    return [Claim(f"{says} ({method})", paper, of(method)) for method in METHODS]


def _best(each: Sequence[str], where: str = "") -> list[Claim]:
    """FedEPM has the fewest rounds and the least time in every setting."""
    return [
        Claim(
            f"FedEPM needs the least {what}{where}",
            "FedEPM lowest",
            lowest(y, "method", "FedEPM", where=THREE, each=each, paired=_partition),
        )
        for y, what in MEASURES.items()
    ]


def _ends(table: Table) -> str:
    """How runs with the fewest local steps end, and where."""
    rows = []
    for (m, method), part in table.where(k0=min(VALUES["k0"])).each("m", "method"):
        of, ended = len(part), [int(np.sum(part[name])) for name in ("risen", "cut")]
        levels = f"{np.min(part['objective']):.4f} to {np.max(part['objective']):.4f}"
        rows.append(
            [f"{m:g}", str(method), *(f"{count} of {of}" for count in ended), f"{np.mean(part['CR']):.0f}", levels]
        )
    headings = ["m", "method", "ended as f and its gradient rose", "cut after 500 rounds", "CR", "f/m at the end"]
    return f"{_trials(table)}\nHow runs end with k0 = 4:\n\n{markdown_table(headings, rows)}\n"


def _mean_risen(part: Table) -> float:
    return float(np.mean(part["risen"]))


def _not_risen(part: Table) -> list[float]:
    """The partitions on which runs do not end so."""
    return part["partition"][part["risen"] == 0].tolist()


def _by_share(table: Table) -> str:
    """Rounds of FedEPM where one thing is changed, and the time of a round."""
    shares = sorted(set(table["share"].tolist()))

    def row(name: str, method: str, value: Callable[[Table], float]) -> list[str]:
        return [name, *(f"{value(table.where(method=method, share=share)):.3g}" for share in shares)]

    rounds = [row(f"CR, {name}", name, lambda part: float(np.mean(part["CR"]))) for name in ("FedEPM", FIXED, FRESH)]
    rounds.append(row(f"share of runs that end as f and its gradient rise, {FRESH}", FRESH, _mean_risen))
    others = {share: _not_risen(table.where(method=FRESH, share=share)) for share in shares}
    for name in (FRESH, FIXED):
        found = [table.where(method=name, share=share, partition=others[share]) for share in shares]
        told = [f"{np.mean(part['CR']):.3g}" if len(part) else "–" for part in found]
        rounds.append([f"CR, {name}, where the new messages only do not end so", *told])
    times = [
        row(f"milliseconds a round, {name}", name, lambda part: 1000 * float(np.sum(part["TCT"]) / np.sum(part["CR"])))
        for name in METHODS
    ]
    headings = ["mean", *(f"ρ = {share:g}" for share in shares)]
    return f"{_trials(table)}\n{markdown_table(headings, rounds + times)}\n"


FIGURE_3 = Experiment(
    "fedepm-figure-3",
    "Figure 3: rounds and time over k0",
    lambda quick: _over(quick, "k0", (50, 100), **{NOT_RISEN: (4,)}),
    [
        *_trends("more local steps, fewer rounds", "CR falls with k0", falls, "CR", "k0", each=("m",)),
        *_trends("more local steps, less time", "TCT falls with k0", falls, "TCT", "k0", each=("m",)),
        *_best(("m", "k0")),
        Claim(
            "SFedProx needs fewer rounds than SFedAvg",
            "SFedProx lower",
            lowest(
                "CR",
                "method",
                "SFedProx",
                where={"method": ["SFedProx", "SFedAvg"]},
                each=("m", "k0"),
                paired=_partition,
            ),
        ),
        Claim(
            "all three approach the same objective (Figure 2)",
            "the same where they stop; to 0.01, as we read it",
            alike("objective", "method", 0.01, where=THREE, each=("m", "k0"), paired=_partition),
        ),
    ],
    [
        Panel(
            y, "k0", ("method",), {"m": m, **THREE}, f"m = {m}", "$k_0$", LABELS[y], log="y", draw=_partition, cut="cut"
        )
        for m in (50, 100)
        for y in MEASURES
    ],
    summary=_ends,
)  # fmt: skip
FIGURE_4 = Experiment(
    "fedepm-figure-4",
    "Figure 4: rounds and time over the share of clients in a round",
    lambda quick: _over(quick, "share", **{FIXED: VALUES["share"], FRESH: VALUES["share"]}),
    [
        *_trends("more clients a round, fewer rounds", "CR falls with rho", falls, "CR", "share"),
        *_trends(
            "but only slightly fewer",
            "slightly; by less than a factor of 2, as we read it",
            alike,
            "CR",
            "share",
            1.0,
            relative=True,
        ),
        *_trends("more clients a round, more time", "TCT rises with rho", rises, "TCT", "share"),
        *_best(("share",)),
    ],
    [
        Panel(
            y,
            "share",
            ("method",),
            THREE,
            xlabel="share of clients ρ",
            ylabel=LABELS[y],
            kind="box",
            log="y",
            cut="cut",
        )
        for y in MEASURES
    ],
    summary=_by_share,
)
FIGURE_5 = Experiment(
    "fedepm-figure-5",
    "Figure 5: rounds, time and signal-to-noise ratio over eps",
    lambda quick: _over(quick, "epsilon"),
    [
        *(
            claim
            for y, what in MEASURES.items()
            for claim in _trends(
                f"eps hardly changes the {what}",
                "within 20 %, as we read it",
                alike,
                y,
                "epsilon",
                0.2,
                relative=True,
            )
        ),
        *_trends("a larger eps, a larger signal-to-noise ratio", "SNR rises with eps", rises, "SNR", "epsilon"),
        Claim(
            "FedEPM has the smallest signal-to-noise ratio",
            "FedEPM lowest",
            lowest("SNR", "method", "FedEPM", each=("epsilon",), paired=_partition),
        ),
        *_best(("epsilon",), " at every eps"),
    ],
    [
        Panel(
            y, "epsilon", ("method",), xlabel="ε", ylabel=LABELS[y], kind="box", log="" if y == "SNR" else "y",
            cut="" if y == "SNR" else "cut",
        )
        for y in LABELS
    ],
    summary=_trials,
)  # fmt: skip

# ------------------------------------------------------------------------------------------------------------- Table I

TABLE_1 = {  # (m, k0) -> seconds of SFedAvg, SFedProx, FedEPM
    (50, 4): (0.0037, 0.0082, 0.0011),
    (50, 8): (0.0067, 0.0155, 0.0015),
    (50, 12): (0.0096, 0.0226, 0.0018),
    (50, 16): (0.0125, 0.0293, 0.0021),
    (50, 20): (0.0148, 0.0360, 0.0023),
    (128, 4): (0.0058, 0.0109, 0.0019),
    (128, 8): (0.0097, 0.0198, 0.0024),
    (128, 12): (0.0132, 0.0279, 0.0030),
    (128, 16): (0.0172, 0.0359, 0.0036),
    (128, 20): (0.0213, 0.0457, 0.0041),
}
RIVALS = {"SFedAvg": 0, "SFedProx": 1}  # places in that


def _ratios(method: str) -> dict[tuple[int, int], float]:
    return {key: row[RIVALS[method]] / row[2] for key, row in TABLE_1.items()}


def _longer(method: str) -> list[Claim]:
    ratios, where = _ratios(method), {"method": method}
    pair = {"method": [method, "FedEPM"]}
    return [
        Claim(
            f"{method} takes longer in a round than FedEPM",
            "FedEPM lowest",
            lowest("milliseconds", "method", "FedEPM", where=pair, each=("m", "k0"), paired=_partition),
        ),
        Claim(
            f"by so many times ({method})",
            f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f} times; to a factor of 2, as we read it",
            near("times_fedepm", ("m", "k0"), ratios, 2.0, where=where, draw=_partition),
        ),
    ]


TABLE_I = Experiment(
    "fedepm-table-1",
    "Table I: local computation time of a round",
    Sweep(
        local_time,
        [{"m": m, "k0": k0} for m, k0 in TABLE_1],
        [{"m": 50, "k0": 12}],
        {"rounds": 15, "partitions": FEW},
        {"rounds": 4, "partitions": 1},
        alone=True,
    ),
    [
        *(claim for method in RIVALS for claim in _longer(method)),
        Claim(
            "SFedProx takes the longest in a round",
            "SFedProx highest",
            highest("milliseconds", "method", "SFedProx", each=("m", "k0"), paired=_partition),
        ),
        *_trends("more local steps take longer", "rises with k0", rises, "milliseconds", "k0", each=("m",)),
    ],
    [
        Panel(
            "times_fedepm",
            "k0",
            ("method",),
            {"m": m, "method": list(RIVALS)},
            f"m = {m}",
            "$k_0$",
            "time of a round, FedEPM = 1",
            paper={name: {k: ratio for (n, k), ratio in _ratios(name).items() if n == m} for name in RIVALS},
            draw=_partition,
        )
        for m in (50, 128)
    ],
    summary=_trials,
)
EXPERIMENTS = (FIGURE_2, FIGURE_3, TABLE_I, FIGURE_4, FIGURE_5)
