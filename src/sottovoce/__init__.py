"""Train one model over data that stays with its owners, with privacy guarantees that are true.

Everything that a user calls is here: `train` and its parts, the scikit-learn estimators and scalers, every algorithm,
loss, penalty and participation rule by its name (`sottovoce.FedPLT`), `load_result`, `verify` and `audit`. So are the
packages (`sottovoce.problems`). Each is imported on first use, so that `import sottovoce` takes almost no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sottovoce.core.lazy import modules_of

if TYPE_CHECKING:  # for type checkers and editors; a test compares it with the table below
    # isort: off
    from sottovoce import algorithms as algorithms, auditing as auditing, cli as cli, core as core, deploy as deploy
    from sottovoce import estimators as estimators, experiment as experiment, ledger as ledger, planning as planning
    from sottovoce import privacy as privacy, problems as problems, report as report, reproduce as reproduce
    from sottovoce import rules as rules, solvers as solvers
    from sottovoce.algorithms import *  # noqa: F403 (a new algorithm needs no line here)
    from sottovoce.auditing.finding import Finding
    from sottovoce.auditing.verify import verify as verify
    from sottovoce.core.contract import Method
    from sottovoce.core.histogram import Evaluation as Evaluation
    from sottovoce.core.participation import Bernoulli as Bernoulli, Covering as Covering, Everyone as Everyone
    from sottovoce.core.participation import KOfN as KOfN, Schedule as Schedule
    from sottovoce.estimators.columns import VerticalClassifier as VerticalClassifier
    from sottovoce.estimators.columns import VerticalRegressor as VerticalRegressor
    from sottovoce.estimators.rows import FederatedClassifier as FederatedClassifier
    from sottovoce.estimators.rows import FederatedRegressor as FederatedRegressor
    from sottovoce.estimators.scalers import PrivateScaler as PrivateScaler, PublicScaler as PublicScaler
    from sottovoce.estimators.scalers import RowClipper as RowClipper
    from sottovoce.experiment.result import Result as Result
    from sottovoce.experiment.saved import load_result as load_result
    from sottovoce.experiment.train import train as train
    from sottovoce.privacy.modes import NoPrivacy as NoPrivacy, Proven as Proven, ProvenColumns as ProvenColumns
    from sottovoce.privacy.modes import Published as Published
    from sottovoce.problems.federation import Federation as Federation
    from sottovoce.problems.losses import Huber as Huber, Logistic as Logistic, SmoothedHinge as SmoothedHinge
    from sottovoce.problems.losses import Softmax as Softmax, Squared as Squared
    from sottovoce.problems.losses import WeightedLogistic as WeightedLogistic, WeightedSoftmax as WeightedSoftmax
    from sottovoce.problems.module import Module as Module
    from sottovoce.problems.objective import Objective as Objective
    from sottovoce.problems.penalties import L1 as L1, L2 as L2, Ball as Ball, Box as Box, ElasticNet as ElasticNet
    from sottovoce.problems.penalties import NoPenalty as NoPenalty
    from sottovoce.problems.schema import Category as Category, Date as Date, Label as Label, Number as Number
    from sottovoce.problems.schema import OneHot as OneHot, Schema as Schema
    from sottovoce.problems.vertical import VerticalFederation as VerticalFederation
    # isort: on

__version__ = "0.1.0"  # pyproject.toml reads it here

_NAMES = {  # the public names of each module; the everyday ones first
    "experiment.train": "train",
    "experiment.result": "Result",
    "problems.federation": "Federation",
    "problems.vertical": "VerticalFederation",
    "problems.objective": "Objective",
    "privacy.modes": "Proven ProvenColumns Published NoPrivacy",
    "estimators.rows": "FederatedClassifier FederatedRegressor",
    "estimators.columns": "VerticalClassifier VerticalRegressor",
    "estimators.scalers": "PublicScaler PrivateScaler RowClipper",
    "experiment.saved": "load_result",
    "auditing.verify": "verify",
    "problems.losses": "Logistic Softmax Squared Huber SmoothedHinge WeightedLogistic WeightedSoftmax",
    "problems.module": "Module",
    "problems.schema": "Schema Number Category Date OneHot Label",
    "problems.penalties": "L1 L2 ElasticNet NoPenalty Box Ball",
    "core.histogram": "Evaluation",
    "core.participation": "Everyone KOfN Bernoulli Covering Schedule",
}
_MODULE_OF = {name: f"sottovoce.{module}" for module, names in _NAMES.items() for name in names.split()}
_load_module = modules_of(__name__)


def audit(
    algorithm: "Method",
    privacy: "Proven | ProvenColumns | Published",
    *,
    rounds: int = 20,
    clients: int = 10,
    records: int = 10,
    features: int = 5,
    runs: int = 20_000,
    seed: int = 0,
) -> "Finding":
    """Attack a method: is there a data set on which its messages give away more than it promises?

    The method is run many times on a data set that is made to show as much as possible, and on a neighbour of it. How
    well the messages tell the two apart is a lower bound on epsilon. If that is above the promise, the promise is
    false. If it is below, nothing is proven. The command `sottovoce audit` does this and also checks noise, clipping
    and charges one by one.

    Parameters
    ----------
    algorithm
        The method, such as ``DPADMM()``.
    privacy
        What it promises: ``Proven(...)``, ``Published(...)``, or ``ProvenColumns(...)`` where columns are split.
    rounds
        Number of rounds in one run.
    clients
        Number of clients in the data set. Data with split columns have a fixed size.
    records
        Number of records of each client.
    features
        Number of columns.
    runs
        Number of runs, where the bound cannot be computed and is estimated from runs.
    seed
        Seed of these runs.

    Returns
    -------
    Finding
        `verdict` is "refuted", "suspicious" or "not refuted"; `worst.lower` is the bound; printing it explains both.

    Examples
    --------
    >>> import sottovoce as sv
    >>> found = sv.audit(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3, runs=64)
    >>> found.verdict, found.statistic, round(found.worst.lower, 3)
    ('not refuted', 'exact', 1.0)
    """
    from sottovoce.auditing import audit as auditor

    game = auditor.worst_case(algorithm, privacy, rounds, clients, records, features)
    return auditor.audit(game, runs, seed)


def _algorithms() -> dict[str, type]:
    from sottovoce.algorithms import ALGORITHMS

    return {algorithm.__name__: algorithm for algorithm in ALGORITHMS.values()}


if not TYPE_CHECKING:  # with `__getattr__` in sight, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name, an algorithm or a module when it is first used."""
        if name in _MODULE_OF:
            return getattr(import_module(_MODULE_OF[name]), name)
        if name == "__all__":
            return list(dict.fromkeys([*_MODULE_OF, "audit", *_algorithms()]))
        if name[0].isupper() and name in _algorithms():
            return _algorithms()[name]
        return _load_module(name)

    def __dir__() -> list[str]:
        from pkgutil import iter_modules

        modules = (module.name for module in iter_modules(__path__) if module.name[0] != "_")  # noqa: F405
        return sorted({"__version__", *__getattr__("__all__"), *modules})
