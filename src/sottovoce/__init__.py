"""Train one model over data that stays with its owners, with privacy guarantees that are true.

The names below are the everyday ones. The rest is in `sottovoce.algorithms`, `sottovoce.problems.losses`,
`sottovoce.problems.penalties`, `sottovoce.core.participation`, `sottovoce.estimators.scalers`,
`sottovoce.problems.data` and `sottovoce.problems.partition`; `sottovoce list` names it all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.algorithms import DPADMM
    from sottovoce.core.participation import Everyone
    from sottovoce.core.participation import KOfN as KOfN
    from sottovoce.estimators import FederatedClassifier, FederatedRegressor, VerticalClassifier
    from sottovoce.estimators.scalers import PrivateScaler, PublicScaler
    from sottovoce.estimators.scalers import RowClipper as RowClipper
    from sottovoce.experiment.result import Result
    from sottovoce.experiment.train import train
    from sottovoce.privacy.modes import NoPrivacy, Proven, ProvenColumns, Published
    from sottovoce.problems.federation import Federation
    from sottovoce.problems.losses import Logistic, Squared
    from sottovoce.problems.losses import Softmax as Softmax
    from sottovoce.problems.module import Module as Module
    from sottovoce.problems.objective import Objective
    from sottovoce.problems.penalties import L1, L2
    from sottovoce.problems.penalties import ElasticNet as ElasticNet
    from sottovoce.problems.vertical import VerticalFederation

__version__ = "0.1.0"
__all__ = [
    "DPADMM",
    "L1",
    "L2",
    "Everyone",
    "FederatedClassifier",
    "FederatedRegressor",
    "Federation",
    "Logistic",
    "NoPrivacy",
    "Objective",
    "PrivateScaler",
    "Proven",
    "ProvenColumns",
    "PublicScaler",
    "Published",
    "Result",
    "Squared",
    "VerticalClassifier",
    "VerticalFederation",
    "train",
]

_MODULES = {  # a few more than the everyday names can be loaded from here
    "sottovoce.algorithms": ("DPADMM",),
    "sottovoce.core.participation": ("Everyone", "KOfN"),
    "sottovoce.estimators": ("FederatedClassifier", "FederatedRegressor", "VerticalClassifier"),
    "sottovoce.estimators.scalers": ("PrivateScaler", "PublicScaler", "RowClipper"),
    "sottovoce.privacy.modes": ("NoPrivacy", "Proven", "ProvenColumns", "Published"),
    "sottovoce.problems.federation": ("Federation",),
    "sottovoce.problems.losses": ("Logistic", "Softmax", "Squared"),
    "sottovoce.problems.module": ("Module",),
    "sottovoce.problems.objective": ("Objective",),
    "sottovoce.problems.penalties": ("L1", "L2", "ElasticNet"),
    "sottovoce.problems.vertical": ("VerticalFederation",),
    "sottovoce.experiment.result": ("Result",),
    "sottovoce.experiment.train": ("train",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: `import sottovoce` alone costs next to nothing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
