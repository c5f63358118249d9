"""Every experiment by its name, in the order of the page, with the remarks of `remarks.toml`."""

from collections.abc import Iterator
from dataclasses import replace

from sottovoce.core.toml import packaged_toml
from sottovoce.reproduce import (
    admm_sharing,
    comparison,
    dp_admm,
    fed_plt,
    fed_plt_tamuna,
    fedepm,
    fedepm_share,
    fedspd_dp,
    fedspd_formulas,
    fedspd_noise,
    fedspd_rivals,
    theorems,
)
from sottovoce.reproduce.experiment import Experiment

_FEDSPD_DP = (
    *fedspd_dp.EXPERIMENTS[:3],
    *fedspd_noise.EXPERIMENTS,
    *fedspd_rivals.EXPERIMENTS,
    *fedspd_dp.EXPERIMENTS[3:],
    *fedspd_formulas.EXPERIMENTS,
)
_PAPERS = {
    "DP-ADMM": (*dp_admm.EXPERIMENTS, theorems.DP_ADMM),
    "FedSPD-DP": (*_FEDSPD_DP, theorems.FEDSPD_DP),
    "Fed-PLT": (*fed_plt.EXPERIMENTS[:1], *fed_plt_tamuna.EXPERIMENTS, *fed_plt.EXPERIMENTS[1:], theorems.FED_PLT),
    "FedEPM": (
        *fedepm.EXPERIMENTS[:3],
        *fedepm_share.EXPERIMENTS,
        *fedepm.EXPERIMENTS[3:],
        theorems.FEDEPM_PENALTY,
        theorems.FEDEPM,
    ),
    "ADMM sharing": (*admm_sharing.EXPERIMENTS, theorems.SHARING),
    "Proven comparison": comparison.EXPERIMENTS,
}


def _experiments() -> Iterator[Experiment]:
    """The experiments, each with its paper, its notes, and why its claims may not come out the same."""
    remarks = packaged_toml("reproduce", "remarks.toml")["remark"]
    for paper, experiments in _PAPERS.items():
        for experiment in experiments:
            own = [remark for remark in remarks if experiment.name in remark["of"]]
            notes = [remark["text"] for remark in own if "claims" not in remark] or [experiment.notes]
            why = {claim: remark["text"] for remark in own for claim in remark.get("claims", ())}
            claims = [replace(claim, why=why.get(claim.says, claim.why)) for claim in experiment.claims]
            yield replace(experiment, paper=paper, notes=" ".join(notes), claims=claims)


EXPERIMENTS = {experiment.name: experiment for experiment in _experiments()}
