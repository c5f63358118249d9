"""One paper, one file. An algorithm that is imported here is known by its name, everywhere: `ALGORITHMS`."""
# ruff: noqa: F401

from sottovoce.algorithms.admm_sharing import ADMMSharing
from sottovoce.algorithms.dp_admm import ADMM, DPADMM, DVP, PVP
from sottovoce.algorithms.dp_sgd import DPSGD
from sottovoce.algorithms.fdml import FDML
from sottovoce.algorithms.fed_plt import FedPLT
from sottovoce.algorithms.fedavg import DPFedAvg, FedAvg, FedProx
from sottovoce.algorithms.fedepm import FedEPM
from sottovoce.algorithms.fedlin import FedLin
from sottovoce.algorithms.fedpd import FedPD
from sottovoce.algorithms.fedspd_dp import FedSPDDP
from sottovoce.algorithms.fivegcs import FiveGCS
from sottovoce.algorithms.led import LED
from sottovoce.algorithms.masked_moments import MaskedMoments
from sottovoce.algorithms.moments import Moments
from sottovoce.algorithms.moments_then_gradients import MomentsThenGradients
from sottovoce.algorithms.noisy_gd import NoisyGD
from sottovoce.algorithms.scaffold import SCAFFOLD
from sottovoce.algorithms.sfedavg import SFedAvg, SFedProx
from sottovoce.algorithms.tamuna import TAMUNA
from sottovoce.core.contract import Algorithm, Method

ALGORITHMS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in [*vars().values()]
    if isinstance(kind, type) and issubclass(kind, Algorithm) and kind is not Algorithm
}
