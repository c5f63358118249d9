"""One paper, one file. `ALGORITHMS` maps a name to its class: the command line, the tests and the docs read it."""

from sottovoce.algorithms.admm import ADMM, DVP, PVP
from sottovoce.algorithms.admm_sharing import ADMMSharing
from sottovoce.algorithms.dp_admm import DPADMM
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
from sottovoce.algorithms.sfedavg import SFedAvg, SFedProx
from sottovoce.algorithms.tamuna import TAMUNA
from sottovoce.core.contract import Method

ALGORITHMS: dict[str, type[Method]] = {
    algorithm.name: algorithm
    for algorithm in (
        ADMM,
        PVP,
        DVP,
        DPADMM,
        DPSGD,
        FedAvg,
        FedProx,
        DPFedAvg,
        SFedAvg,
        SFedProx,
        FedEPM,
        FedPLT,
        FedSPDDP,
        FedPD,
        FedLin,
        LED,
        TAMUNA,
        FiveGCS,
        ADMMSharing,
        FDML,
    )
}
