"""Every experiment by its name, in the order of the page."""

from dataclasses import replace

from sottovoce.reproduce import admm_sharing, comparison, dp_admm, fed_plt, fedepm, fedspd_dp
from sottovoce.reproduce.experiment import Experiment

_PAPERS = {
    "DP-ADMM": dp_admm.EXPERIMENTS,
    "FedSPD-DP": fedspd_dp.EXPERIMENTS,
    "Fed-PLT": fed_plt.EXPERIMENTS,
    "FedEPM": fedepm.EXPERIMENTS,
    "ADMM sharing": admm_sharing.EXPERIMENTS,
    "Proven comparison": comparison.EXPERIMENTS,
}
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: replace(experiment, paper=paper)
    for paper, experiments in _PAPERS.items()
    for experiment in experiments
}
