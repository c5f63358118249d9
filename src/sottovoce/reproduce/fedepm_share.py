"""FedEPM (Zhou and Li 2022), Figure 4: rounds and time over the share ρ of clients in a round.

Besides the paper's three methods there are runs of FedEPM in which one thing after the other is changed, to tell why
its rounds fall with ρ as they do; and the rivals with the other mean that the paper prints, (34).
"""

from dataclasses import replace
from functools import partial

import numpy as np

from sottovoce.report.tables import markdown_table
from sottovoce.reproduce import fedepm
from sottovoce.reproduce.experiment import Claim, Experiment, Finding, Sweep, Table, every
from sottovoce.reproduce.fedepm_trials import AS_PRINTED, FIXED, FRESH, METHODS, MOST, RESET, local_time, run
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.verdicts import alike, falls, rises

CHANGED, SHARES = (FIXED, FRESH, RESET), fedepm.VALUES["share"]
FEWER = partial(fedepm.trends, "more clients a round, fewer rounds", "CR falls with rho", falls, "CR", "share")
LONGER = partial(fedepm.trends, "more clients a round, more time", "TCT rises with rho", rises, "TCT", "share")
_drawn = partial(fedepm.drawn, x="share", xlabel="share of clients ρ")
SLIGHTLY = partial(
    fedepm.trends, "but only slightly fewer", "slightly; by less than a factor of 2, as we read it", alike, "CR",
    "share", within=1.0, relative=True,
)  # fmt: skip


def _by_share(table: Table) -> str:
    """Rounds, also of FedEPM where one thing is changed, and the time of a round."""
    of_a_round, runs = table.where(varied="share"), fedepm.runs_of(table)
    shares, rounds = sorted(set(runs["share"].tolist())), []
    for name in (*METHODS, *CHANGED):
        found = [runs.where(method=name, share=share)["CR"] for share in shares]
        rounds.append([f"CR, {name}", *(f"{np.mean(one):.3g} ({np.median(one):.3g})" for one in found)])
    for name in METHODS:
        found = means(of_a_round.where(method=name), "milliseconds", "share")
        rounds.append([f"milliseconds a round, {name}", *(f"{found[share].value:.3g}" for share in shares)])
    headings = ["mean (of CR also the median)", *(f"ρ = {share:g}" for share in shares)]
    return f"{fedepm.costs(table)}\n{markdown_table(headings, rounds)}\n"


FIGURE_4 = Experiment(
    "fedepm-figure-4",
    "Figure 4: rounds and time over the share of clients in a round",
    lambda quick: fedepm.over(quick, "share", **{FIXED: SHARES, FRESH: SHARES, RESET: SHARES}),
    [
        *(  # of the rivals with the mean (34): below
            claim if claim.kind == fedepm.FITTED else replace(claim, says=f"{claim.says}, mean of IV-C")
            for claim in (*FEWER(), *LONGER())
        ),
        *SLIGHTLY(methods={"FedEPM": "FedEPM"}),
        *fedepm.best(("share",), medians=True),
    ],
    [_drawn(y, where=fedepm.THREE, kind="box") for y in fedepm.MEASURES],
    summary=_by_share,
)

# ---------------------------------------------------------------------------------------- the rivals' mean as printed

AS_IN_34 = {method: f"{method}, {AS_PRINTED}" for method in fedepm.RIVALS}
_ALL = ("FedEPM", *AS_IN_34.values())
_IN_34 = every(**fedepm.AXES | {"m": (50,), "share": SHARES}, method=_ALL)
_RUNS = Sweep(run, _IN_34, _IN_34[:6], {"partitions": 4, "last": 6000}, {"partitions": 2, "last": 4})  # none is cut
_TIMES = Sweep(
    local_time,
    every(m=(50,), varied=("share",)),
    sizes={"values": SHARES, "rounds": 9, "partitions": 4, "methods": _ALL},
    quick_sizes={"values": SHARES[:2], "rounds": 4, "partitions": 2},
    alone=True,
)


def _cut(claim: Claim) -> Claim:
    """The same if all runs that take longer were cut as in the other figures."""

    def measure(table: Table) -> Finding:
        return claim.measure(Table({**table.columns, "CR": np.minimum(table["CR"], MOST)}))

    return replace(claim, says=f"{claim.says}, cut after {MOST} rounds", measure=measure, kind="ours")


_CLAIMS = [claim for ask in (FEWER, SLIGHTLY, LONGER) for claim in ask(methods=AS_IN_34)]
OF_34 = Experiment(
    "fedepm-mean",
    "Figure 4: rounds and time of the rivals with their mean (34)",
    lambda quick: [*_RUNS(quick), *_TIMES(quick)],
    [*_CLAIMS, *fedepm.best(("share",), " (rivals with (34))", methods=_ALL), *map(_cut, _CLAIMS[2:])],
    [_drawn(y, where={"method": _ALL}) for y in fedepm.MEASURES],
    summary=lambda table: fedepm.trials_of(fedepm.runs_of(table)),
)
EXPERIMENTS = (FIGURE_4, OF_34)
