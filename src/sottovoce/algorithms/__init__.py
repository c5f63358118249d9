"""One paper, one file. `ALGORITHMS` maps a name to its class: the command line, the tests and the docs read it."""

from typing import Any

from sottovoce.algorithms.admm import ADMM, DVP, PVP
from sottovoce.algorithms.dp_admm import DPADMM
from sottovoce.algorithms.dp_sgd import DPSGD
from sottovoce.algorithms.fedavg import FedAvg
from sottovoce.core.algorithm import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any, Any, Any, Any]]] = {
    algorithm.name: algorithm for algorithm in (ADMM, PVP, DVP, DPADMM, DPSGD, FedAvg)
}
