"""FedSPD-DP (Li et al. 2022), Figures 2 to 4 with the same steps and no noise: what is due to the noise.

Where a curve of `fedspd_dp.py` is not the paper's, it may be by the noise (20), or by the steps (35), which are as
short as that noise asks for. Here only the noise is left out.
"""

from collections.abc import Mapping, Sequence

from sottovoce.algorithms import FedSPDDP
from sottovoce.core.contract import Array, Noise, Site
from sottovoce.core.plain import Json
from sottovoce.report.tables import markdown_table
from sottovoce.reproduce.experiment import Columns, Experiment, Panel, Setting, Sweep, Table, Value
from sottovoce.reproduce.fedspd_dp import ACCURACY, FEWER, FITTED, LITERAL, QUICK, both, trial
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.measures import over_rounds
from sottovoce.reproduce.verdicts import alike, declines, falls

FIGURES: Mapping[int, tuple[str, Sequence[Value], Json]] = {  # what is varied, and what is not
    2: ("total", (0.5,), {"K": 20, "Q": 5}),
    3: ("K", (10, 20, 50, 100), {"total": 1.0, "Q": 5}),
    4: ("Q", (2, 5, 10, 20), {"total": 3.0, "K": 10}),
}


class WithoutNoise(FedSPDDP):
    """Not the paper's: its steps, and no noise."""

    def noise(self, site: Site, gamma: Array | float) -> Noise | None:
        return Noise("gaussian", 0.0 * self.slope(site))


def silent(figure: int, reading: str, total: float, K: int, Q: int, rounds: int, trials: int) -> Columns:
    return trial(reading, rounds, trials, total, K, Q, WithoutNoise)


def _settings(figures: Sequence[int]) -> list[Setting]:
    return [
        {"figure": number, "reading": reading, **fixed, by: value}
        for number in figures
        for by, values, fixed in (FIGURES[number],)
        for reading in (LITERAL, FITTED)
        for value in values
    ]


def _shown(table: Table) -> str:
    """Accuracy and ALFV without noise, by what a figure varies."""
    rows = []
    for (number, reading), part in table.each("figure", "reading"):
        by = FIGURES[number][0]
        for name, y in (("accuracy", ACCURACY), ("ALFV", "alfv")):
            over, ends = means(part, y, by), means(part.at_end(), y, by)
            values = [f"{by} = {value:g}: {over[value].value:.4f}, {ends[value].value:.4f}" for value in ends]
            rows.append([str(number), reading, name, "; ".join(values)])
    headings = ["Figure", "reading", "of", "mean over the rounds, and end, without noise"]
    return f"{markdown_table(headings, rows)}\n"


WITHOUT_NOISE = Experiment(
    "fedspd-dp-noise",
    "Figures 2 to 4 without their noise: the same steps, to tell what is due to the noise",
    Sweep(silent, _settings((2, 3, 4)), _settings((2,)), FEWER, QUICK),
    [
        *both(
            "without noise ALFV decreases at a total of 0.5",
            "decreases", declines, "alfv", where={"figure": 2}, kind="ours",
        ),
        *both(
            "without noise the number of clients a round does not matter for the accuracy",
            "alike, by (35) and (36); to 0.002 in the mean over the rounds", alike, ACCURACY, "K", 0.002,
            of=over_rounds(ACCURACY, "figure", "reading", "K"), where={"figure": 3}, kind="ours",
        ),
        *both(
            "without noise more local steps, smaller ALFV",
            "falls with Q", falls, "alfv", "Q", where={"figure": 4}, kind="ours",
        ),
    ],
    [
        Panel(y, lines=("Q",), where={"figure": 4, "reading": reading}, title=f"{reading}, no noise", ylabel=label)
        for reading in (LITERAL, FITTED)
        for y, label in ((ACCURACY, "test accuracy"), ("alfv", "ALFV"))
    ],
    summary=_shown,
)  # fmt: skip
EXPERIMENTS = (WITHOUT_NOISE,)
