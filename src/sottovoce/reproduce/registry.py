"""Every experiment by its name, in the order of the page."""

from sottovoce.reproduce import admm_sharing, comparison, dp_admm, fed_plt, fedepm, fedspd_dp
from sottovoce.reproduce.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for group in (dp_admm, fedspd_dp, fed_plt, fedepm, admm_sharing, comparison)
    for experiment in group.EXPERIMENTS
}
