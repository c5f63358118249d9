"""Train one model over data that stays with its owners, with privacy guarantees that are true.

The names below are the everyday ones. The rest is in `sottovoce.algorithms`, `sottovoce.problems.losses`,
`sottovoce.problems.penalties`, `sottovoce.core.participation`, `sottovoce.problems.datasets` and
`sottovoce.problems.partition`; `sottovoce list` names it all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sottovoce.algorithms import DPADMM
    from sottovoce.core.participation import Everyone, KOfN
    from sottovoce.privacy.modes import NoPrivacy, Proven, Published
    from sottovoce.problems.federation import Federation
    from sottovoce.problems.losses import Logistic, Softmax, Squared
    from sottovoce.problems.objective import Objective
    from sottovoce.problems.penalties import L1, L2, ElasticNet
    from sottovoce.run.simulate import Result, train

__version__ = "0.1.0"
__all__ = [
    "DPADMM",
    "L1",
    "L2",
    "ElasticNet",
    "Everyone",
    "Federation",
    "KOfN",
    "Logistic",
    "NoPrivacy",
    "Objective",
    "Proven",
    "Published",
    "Result",
    "Softmax",
    "Squared",
    "train",
]

_MODULES = {
    "sottovoce.algorithms": ("DPADMM",),
    "sottovoce.core.participation": ("Everyone", "KOfN"),
    "sottovoce.privacy.modes": ("NoPrivacy", "Proven", "Published"),
    "sottovoce.problems.federation": ("Federation",),
    "sottovoce.problems.losses": ("Logistic", "Softmax", "Squared"),
    "sottovoce.problems.objective": ("Objective",),
    "sottovoce.problems.penalties": ("L1", "L2", "ElasticNet"),
    "sottovoce.run.simulate": ("Result", "train"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used: `import sottovoce` alone costs next to nothing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
