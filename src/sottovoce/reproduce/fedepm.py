"""FedEPM (Zhou and Li 2022), section VII: objective, rounds, time and signal-to-noise ratio over k0 and eps.

Figure 4, over rho, is in `fedepm_share.py`.

What is run is in `fedepm_trials.py`. Every trial has a partition of its own; all methods are run on the same ones, so
that differences are taken partition by partition.

TCT is the rounds (CR) of a run times the CPU time of a round. The latter is measured apart, with all methods and values
in turns on the same partition: runs that are minutes apart would tell how busy the machine was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Cell, Claim, Experiment, Kind, Panel, Setting, Sweep, Table, every
from sottovoce.reproduce.fedepm_trials import METHODS, PLAIN, PRINTED_MU, UNLIMITED, local_time, run
from sottovoce.reproduce.verdicts import Rule, alike, falls, highest, lowest, lowest_median, near, rises

FITTED: Kind = "conjecture"  # claims about FedEPM's own runs: its step is μ/d_i because the paper's figures need it
TRIALS, RIVALS_TRIALS, FEW = 100, 20, 10  # of FedEPM; of others, which cost far more; in Figure 2 and Table I


def trials_of(table: Table) -> str:
    """On how many partitions each method was run."""
    counts = "; ".join(f"{method}: {len(np.unique(rows['partition']))}" for (method,), rows in table.each("method"))
    return f"Trials: {counts}.\n"


def costs(table: Table) -> str:
    """The same, and what as many trials of the rivals as of FedEPM would take."""
    rivals = timed(table).where(method=list(RIVALS))
    more = TRIALS / len(np.unique(rivals["partition"])) - 1
    minutes = f"{more * rivals['TCT'].sum() / 60:.0f} minutes of CPU time"
    return f"{trials_of(runs_of(table))[:-1]} {TRIALS} of SFedAvg and SFedProx too would take {minutes} more.\n"


def runs_of(table: Table) -> Table:
    """Without the rows that tell times."""
    return table.rows(~np.isnan(table["CR"]))


def timed(table: Table) -> Table:
    """Runs on the partitions on which rounds were timed, with TCT in seconds."""
    runs, times = runs_of(table), table.rows(np.isnan(table["CR"]))
    names = ("m", "method", "partition", str(times["varied"][0]))
    found, keys = (list(zip(*(part[name].tolist() for name in names), strict=True)) for part in (times, runs))
    of_a_round = dict(zip(found, times["milliseconds"].tolist(), strict=True))
    seconds = runs["CR"] * np.array([of_a_round.get(key, np.nan) for key in keys]) / 1000
    return Table({**runs.columns, "TCT": seconds}).rows(~np.isnan(seconds))


# ------------------------------------------------------------------------------------------------------------- Figure 2


AXES = {name: (value,) for name, value in PLAIN.items()}
FIGURE_2 = Experiment(
    "fedepm-figure-2",
    "Figure 2: objective over communication rounds",
    Sweep(
        run,
        every(**AXES | {"m": (50, 100), "k0": (4, 12, 20)}, method=METHODS),
        every(**AXES | {"m": (50,), "k0": (4,)}, method=METHODS),
        {"partitions": FEW, "last": 60, "trace": True},
        {"partitions": 4, "last": 10},
    ),
    [
        Claim(
            "FedEPM declines the fastest",
            "FedEPM lowest (after 10 rounds)",
            lowest("objective", "method", "FedEPM", where={"round": 10.0}, each=("m", "k0"), paired="partition"),
            robust=True,
            kind=FITTED,
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
    summary=trials_of,
)

# ------------------------------------------------------------------------------------------------------ Figures 3 to 5

MEASURES = {"CR": "rounds", "TCT": "time"}
OF = {"CR": runs_of, "TCT": timed, "SNR": runs_of, "objective": runs_of, "milliseconds": lambda table: table}
LABELS = {"CR": "communication rounds", "TCT": "CPU seconds", "SNR": "log10 of signal to noise"}


VALUES = {"k0": (4, 8, 12, 16, 20), "share": (0.2, 0.4, 0.6, 0.8, 1.0), "epsilon": (0.1, 0.3, 0.5, 0.7, 0.9)}
FEWEST = VALUES["k0"][:2]
ALSO_TIMED = {"share": (0.98,)}  # all but one client: to tell what it takes to choose some of them
THREE = {"method": METHODS}
RIVALS = {"SFedAvg": 0, "SFedProx": 1}  # places in Table I
# Sizes of runs that are not the paper's.
SIZES = {UNLIMITED: {"partitions": 2, "last": 4000}, PRINTED_MU: {"partitions": FEW}}


def _cell(setting: Setting, quick: bool) -> Cell:
    ours = setting["method"] == "FedEPM"
    if quick:
        return Cell(setting, run, {"partitions": 2, "last": 40 if ours else 4})
    usual = {"partitions": TRIALS if ours else RIVALS_TRIALS}
    return Cell(setting, run, SIZES.get(str(setting["method"]), usual))


def over(quick: bool, name: str, numbers: Sequence[int] = (50,), **others: Sequence[float]) -> list[Cell]:
    """All three methods, m of `numbers` and the values of the paper (quick: the first two); all else is as there.
    And `others`: methods that are not the paper's, with the values for which they are run. And what a round takes."""
    values = VALUES[name][:2] if quick else VALUES[name]
    axes = {**AXES, "m": numbers[:1] if quick else numbers}
    settings = every(**axes | {name: values}, method=METHODS)
    for method, tried in others.items():
        settings += every(**axes | {name: tried[:2] if quick else tried}, method=(method,))
    sizes = {"values": (*values, *ALSO_TIMED.get(name, ())), "rounds": 9, "partitions": RIVALS_TRIALS}
    to_time = every(m=axes["m"], varied=(name,))
    times = Sweep(local_time, to_time, None, sizes, {"rounds": 4, "partitions": 2}, alone=True)
    return [_cell(setting, quick) for setting in settings] + times(quick)


def judged(rule: Any, y: str, *arguments: Any, **which: Any) -> Rule:
    """The rule on the rows that have `y`, partition by partition."""
    return rule(y, *arguments, of=OF[y], paired="partition", **which)


def drawn(y: str, x: str, xlabel: str, **options: Any) -> Panel:
    """`y` of each method over `x`; rounds and time on a logarithmic axis, with marks where runs were cut."""
    more: Json = {"log": "y", "cut": "cut"} if y in MEASURES else {}
    return Panel(y, x, ("method",), xlabel=xlabel, ylabel=LABELS[y], of=OF[y], **more, **options)


EACH = {method: method for method in METHODS}


def trends(
    says: str, paper: str, rule: Any, *arguments: Any, methods: Mapping[str, str] = EACH, **which: Any
) -> list[Claim]:
    """What the paper says of all three methods, for each of them; `methods` has the names that they are run by."""
    return [
        Claim(
            f"{says} ({method})",
            paper,
            judged(rule, *arguments, where={"method": name}, **which),
            kind=FITTED if method == "FedEPM" else "measured",
        )
        for method, name in methods.items()
    ]


def best(each: Sequence[str], where: str = "", medians: bool = False, methods: Sequence[str] = METHODS) -> list[Claim]:
    """FedEPM has the fewest rounds and the least time in every setting; in the mean, or in the median."""
    return [
        Claim(
            f"FedEPM needs the least {what}{where}",
            "FedEPM's median lowest; on clearly more than half of the partitions too" if medians else "FedEPM lowest",
            judged(lowest_median if medians else lowest, y, "method", "FedEPM", where={"method": methods}, each=each),
            kind=FITTED,
        )
        for y, what in MEASURES.items()
    ]


def _ends(table: Table) -> str:
    """How runs with the fewest local steps end, and where."""
    rows = []
    for (m, k0, method), part in runs_of(table).where(k0=FEWEST).each("m", "k0", "method"):
        ended = [f"{int(np.sum(part[name]))} of {len(part)}" for name in ("risen", "cut")]
        levels = f"{np.min(part['objective']):.4f} to {np.max(part['objective']):.4f}"
        rows.append([f"{m:g}", f"{k0:g}", str(method), *ended, f"{np.mean(part['CR']):.0f}", levels])
    headings = ["m", "k0", "method", "ended as f and its gradient rose", "cut after 500 rounds", "CR", "f/m at the end"]
    limit = f"{UNLIMITED}: no stop as f and its gradient rise, {SIZES[UNLIMITED]['last']} rounds"
    return f"{costs(table)}\nHow runs end with k0 = 4 and 8 ({limit}):\n\n{markdown_table(headings, rows)}\n"


FIGURE_3 = Experiment(
    "fedepm-figure-3",
    "Figure 3: rounds and time over k0",
    lambda quick: over(quick, "k0", (50, 100), **{UNLIMITED: FEWEST, PRINTED_MU: VALUES["k0"]}),
    [
        *trends("more local steps, fewer rounds", "CR falls with k0", falls, "CR", "k0", each=("m",)),
        *trends("more local steps, less time", "TCT falls with k0", falls, "TCT", "k0", each=("m",)),
        *best(("m", "k0")),
        Claim(
            "SFedProx needs fewer rounds than SFedAvg",
            "SFedProx lower",
            judged(lowest, "CR", "method", "SFedProx", where={"method": ["SFedProx", "SFedAvg"]}, each=("m", "k0")),
        ),
        Claim(
            "all three approach the same objective (Figure 2)",
            "the same where they stop; to 0.01, as we read it",
            judged(alike, "objective", "method", 0.01, where=THREE, each=("m", "k0")),
            kind=FITTED,
        ),
        Claim(
            "all three approach the same objective (Figure 2), μ of FedEPM as printed",
            "the same where they stop; to 0.01, as we read it",
            judged(alike, "objective", "method", 0.01, where={"method": [PRINTED_MU, *RIVALS]}, each=("m", "k0")),
        ),
    ],
    [
        drawn(y, "k0", "$k_0$", where={"m": m, **THREE}, title=f"m = {m}", draw="partition", early="risen")
        for m in (50, 100)
        for y in MEASURES
    ],
    summary=_ends,
)
FIGURE_5 = Experiment(
    "fedepm-figure-5",
    "Figure 5: rounds, time and signal-to-noise ratio over eps",
    lambda quick: over(quick, "epsilon"),
    [
        *(
            claim
            for y, what in MEASURES.items()
            for claim in trends(
                f"eps hardly changes the {what}", "within 20 %, as we read it", alike, y, "epsilon", 0.2, relative=True
            )
        ),
        *trends("a larger eps, a larger signal-to-noise ratio", "SNR rises with eps", rises, "SNR", "epsilon"),
        Claim(
            "FedEPM has the smallest signal-to-noise ratio",
            "FedEPM lowest",
            judged(lowest, "SNR", "method", "FedEPM", each=("epsilon",)),
            kind=FITTED,
        ),
        *best(("epsilon",), " at every eps"),
    ],
    [drawn(y, "epsilon", "ε", kind="box") for y in LABELS],
    summary=costs,
)

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


def _ratios(method: str) -> dict[tuple[int, int], float]:
    return {key: row[RIVALS[method]] / row[2] for key, row in TABLE_1.items()}


def _longer(method: str) -> list[Claim]:
    ratios, pair = _ratios(method), {"method": [method, "FedEPM"]}
    return [
        Claim(
            f"{method} takes longer in a round than FedEPM",
            "FedEPM lowest",
            lowest("milliseconds", "method", "FedEPM", where=pair, each=("m", "k0"), paired="partition"),
        ),
        Claim(
            f"by so many times ({method})",
            f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f} times; to a factor of 2, as we read it",
            near("times_fedepm", ("m", "k0"), ratios, 2.0, where={"method": method}, draw="partition"),
        ),
    ]


TABLE_I = Experiment(
    "fedepm-table-1",
    "Table I: local computation time of a round",
    Sweep(
        local_time,
        every(m=(50, 128), varied=("k0",)),
        every(m=(50,), varied=("k0",)),
        {"values": VALUES["k0"], "rounds": 9, "partitions": FEW},
        {"values": (12,), "rounds": 4, "partitions": 1},
        alone=True,
    ),
    [
        *(claim for method in RIVALS for claim in _longer(method)),
        Claim(
            "SFedProx takes the longest in a round",
            "SFedProx highest",
            highest("milliseconds", "method", "SFedProx", each=("m", "k0"), paired="partition"),
        ),
        *(
            replace(claim, kind="measured")  # what a round takes does not depend on how long the steps are
            for claim in trends(
                "more local steps take longer", "rises with k0", rises, "milliseconds", "k0", each=("m",)
            )
        ),
    ],
    [
        Panel(
            "times_fedepm", "k0", ("method",), where={"m": m, "method": list(RIVALS)}, draw="partition",
            title=f"m = {m}", xlabel="$k_0$", ylabel="time of a round, FedEPM = 1",
            paper={name: {k: ratio for (n, k), ratio in _ratios(name).items() if n == m} for name in RIVALS},
        )
        for m in (50, 128)
    ],
    summary=trials_of,
)  # fmt: skip
EXPERIMENTS = (FIGURE_2, FIGURE_3, TABLE_I, FIGURE_5)
