"""One row per algorithm: what the checks in `tests/algorithms/` run on."""

from dataclasses import dataclass, field, replace
from typing import Any, get_args, get_type_hints

import numpy as np

from sottovoce.algorithms import (
    ADMM,
    DPADMM,
    DPSGD,
    DVP,
    FDML,
    LED,
    PVP,
    SCAFFOLD,
    TAMUNA,
    ADMMSharing,
    DPFedAvg,
    FedAvg,
    FedEPM,
    FedLin,
    FedPD,
    FedPLT,
    FedProx,
    FedSPDDP,
    FiveGCS,
    MomentsThenGradients,
    NoisyGD,
    SFedAvg,
    SFedProx,
)
from sottovoce.core.contract import Method
from sottovoce.privacy.modes import NoPrivacy, Proven, ProvenColumns, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L1, L2, Penalty
from sottovoce.problems.vertical import VerticalFederation
from tests.centralised import (
    SIZE,
    Script,
    admm,
    averaged_proximal_gradient,
    douglas_rachford,
    every_second,
    linearised_admm,
    peaceman_rachford,
    preconditioned,
    primal_dual,
    proximal_gradient,
    proximal_point,
    shrinking_steps,
    soft_penalty,
)


@dataclass(frozen=True)
class Case:
    """One method: tuned for the small problems below, with what it does not promise.

    Parameters
    ----------
    algorithm
        With parameters that reach the optimum of `small` when there is no noise.
    rounds, tolerance
        How many rounds that takes with the logistic loss and an l1 penalty, and how near the optimum the model is
        then, in every coordinate. Other problems are better conditioned: a third of the rounds will do (`enough`).
    smooth_only
        Why the method refuses a penalty that is not smooth, if it does.
    one_client
        What the method is with one client: a plain program (`centralised.py`) for each of these settings. Where
        columns are split there is none.
    """

    algorithm: Method
    rounds: int = 850
    tolerance: float = 1e-10
    smooth_only: str = ""
    one_client: dict[Method, Script] = field(default_factory=dict)

    def enough(self, loss: str, penalty: str) -> int:
        """The rounds that this problem takes."""
        return self.rounds if (loss, penalty) == ("logistic", "l1") else self.rounds // 3


ARG_MIN = 1e-8  # arg-mins are solved to |gradient| <= 1e-9, whatever the number of rounds
NO_PROX = "its limit is where the mean gradient vanishes: a prox after several local steps would move it"
LINEAR_EPM: dict[str, Any] = {"eta": 0.2, "lam": 0.0, "mu": 0.8, "c": 0.0, "alpha": 1.0, "k0": 4}

CASES = {
    case.algorithm.name: case
    for case in (
        Case(ADMM(rho=0.3), 250, ARG_MIN, one_client={ADMM(rho=0.3): lambda p: admm(p, 0.3)}),
        Case(PVP(rho=0.3), 250, ARG_MIN, one_client={PVP(rho=0.3): lambda p: admm(p, 0.3)}),
        Case(DVP(rho=0.3), 250, ARG_MIN, one_client={DVP(rho=0.3): lambda p: admm(p, 0.3)}),
        Case(
            DPADMM(rho=0.3, penalty_at="server"),
            rounds=500,
            one_client={DPADMM(rho=0.3, penalty_at="server"): lambda p: linearised_admm(p, 0.3, 0.25)},
        ),
        Case(NoisyGD(step=1.0), one_client={NoisyGD(step=0.7): lambda p: proximal_gradient(p, 0.7)}),
        Case(
            MomentsThenGradients(curvature=1.0),
            rounds=300,
            smooth_only="the prox would have to be taken in the metric of the preconditioner",
            one_client={MomentsThenGradients(curvature=1.0): lambda p: preconditioned(p, 1.0)},
        ),
        Case(DPSGD(step=1.0), one_client={DPSGD(step=0.7): lambda p: proximal_gradient(p, 0.7)}),
        Case(FedAvg(step=1.0), one_client={FedAvg(step=0.7, local_steps=3): lambda p: proximal_point(p, 0.7, 3)}),
        Case(
            FedProx(step=3.0),
            rounds=400,
            one_client={FedProx(step=0.7, local_steps=3, pull=0.4): lambda p: proximal_point(p, 0.7, 3, 0.4)},
        ),
        Case(
            DPFedAvg(step=3.0, local_steps=1),
            rounds=400,
            one_client={DPFedAvg(step=0.7, local_steps=3): lambda p: proximal_point(p, 0.7, 3)},
        ),
        Case(
            SFedAvg(step=10.0, local_steps=1, by_size=False),
            rounds=1800,
            one_client={
                SFedAvg(step=2.0, local_steps=3, by_size=False): lambda p: shrinking_steps(p, 2.0, 3),
                SFedAvg(step=0.05, local_steps=3): lambda p: shrinking_steps(p, 0.05 * SIZE, 3),
            },
        ),
        Case(
            SFedProx(step=10.0, local_steps=1, inner=1, by_size=False),
            rounds=1800,
            one_client={
                SFedProx(step=1.0, local_steps=3, pull=0.4, by_size=False): lambda p: shrinking_steps(
                    p, 1.0, 3, 3, 0.4
                ),
                SFedProx(step=0.02, local_steps=3, pull=0.4): lambda p: shrinking_steps(p, 0.02 * SIZE, 3, 3, 0.4),
            },
        ),
        Case(
            FedEPM(**LINEAR_EPM),
            rounds=400,
            one_client={
                FedEPM(**LINEAR_EPM): lambda p: soft_penalty(p, 0.2, 0.8, 4),
                FedEPM(**LINEAR_EPM, variant="P"): lambda p: soft_penalty(p, 0.2, 0.8, 4),
            },
        ),
        Case(
            FedPLT(rho=8.0, step=1.5),
            rounds=180,
            one_client={
                FedPLT(rho=2.0, local_steps=4, step=1.1): lambda p: peaceman_rachford(p, 2.0, 4, 1.1),
                FedPLT(rho=2.0, local_steps=4, step=1.1, variant="B"): lambda p: peaceman_rachford(p, 2.0, 4, 1.1),
            },
        ),
        Case(
            FedSPDDP(rho=0.3, gamma=0.6, local_steps=3),
            rounds=500,
            one_client={
                FedSPDDP(rho=0.3, gamma=0.6, local_steps=3): lambda p: averaged_proximal_gradient(p, 0.3, 0.6, 3),
                FedSPDDP(rho=0.3, gamma=0.6, local_steps=3, variant="P"): lambda p: averaged_proximal_gradient(
                    p, 0.3, 0.6, 3, from_mean=True
                ),
            },
        ),
        Case(
            FedPD(eta=3.0, local_steps=5, step=1.2),
            rounds=300,
            one_client={FedPD(eta=2.0, local_steps=4, step=1.1): lambda p: douglas_rachford(p, 2.0, 4, 1.1)},
        ),
        Case(
            FedLin(step=1.0, local_steps=3),
            rounds=450,
            smooth_only=NO_PROX,
            one_client={FedLin(step=0.7, local_steps=3): lambda p: every_second(proximal_point(p, 0.7, 3))},
        ),
        Case(
            SCAFFOLD(step=1.0, local_steps=3),
            rounds=300,
            smooth_only=NO_PROX,
            one_client={SCAFFOLD(step=0.7, local_steps=3): lambda p: proximal_point(p, 0.7, 3)},
        ),
        Case(
            LED(step=1.0, local_steps=3),
            rounds=300,
            smooth_only=NO_PROX,
            one_client={LED(step=0.7, local_steps=3): lambda p: proximal_point(p, 0.7, 3)},
        ),
        Case(
            TAMUNA(step=1.0, local_steps=3),
            rounds=300,
            smooth_only=NO_PROX,
            one_client={TAMUNA(step=0.7, local_steps=1): lambda p: proximal_point(p, 0.7, 1)},
        ),
        Case(
            FiveGCS(tau=0.3, local_steps=5, step=1.2),
            rounds=300,
            one_client={
                FiveGCS(tau=0.4, gamma=1.5, local_steps=4, step=1.1): lambda p: primal_dual(p, 0.4, 1.5, 4, 1.1)
            },
        ),
    )
}

VERTICAL = {  # methods for columns split between parties: the same contract, other data and other modes
    case.algorithm.name: case for case in (Case(ADMMSharing(), rounds=600), Case(FDML(step=1.0, batch=20)))
}
EVERY = CASES | VERTICAL


def small(loss: str = "logistic", unequal: bool = True, features: int = 4, seed: int = 3) -> Federation:
    """Six clients that disagree: shifted features, their own true model; rows no longer than 1."""
    rng = np.random.default_rng(seed)
    sizes = [3, 7, 12, 20, 31, 47] if unequal else [20] * 6
    clients = []
    for size in sizes:
        X = rng.normal(size=(size, features)) + 0.5 * rng.normal(size=features)
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        score = X @ (rng.normal(size=features) + np.array([1.0, -1.0, 0.0, 0.0][:features]))
        noisy = score + 0.3 * rng.normal(size=size)
        clients.append((X, np.where(noisy >= 0, 1.0, -1.0) if loss == "logistic" else noisy))
    return Federation.from_clients(clients, row_bound=1.0)


def small_columns(seed: int = 3) -> VerticalFederation:
    """Six parties of unequal width with 40 samples; other seeds give other features and the same labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 10)) / np.sqrt(10)
    y = np.where(np.arange(40) % 3 == 0, 1.0, -1.0)
    X[:, 0] += 0.3 * y
    return VerticalFederation.from_columns(X, y, [1, 2, 3, 1, 2, 1])


def data(name: str, seed: int = 3) -> Any:
    """The small problem for the method of this name."""
    return small_columns(seed) if name in VERTICAL else small(seed=seed)


def goal(loss: str = "logistic", penalty: Penalty | str = "l2", scale: str = "mean") -> Objective:
    if isinstance(penalty, str):
        penalty = {"l1": L1(0.01), "l2": L2(0.05)}[penalty]
    return Objective(Logistic() if loss == "logistic" else Squared(), penalty, scale)  # type: ignore[arg-type]


COLUMN_UNITS: dict[str, Any] = {  # bounds that do not bind on `small_columns`
    "proven, party": ProvenColumns(20.0, 1e-3, unit="party", bound=50.0),
    "proven, column": ProvenColumns(20.0, 1e-3, unit="column", bound=50.0, column_bound=10.0),
    "proven, record": ProvenColumns(20.0, 1e-3, unit="record", bound=50.0, row_bound=3.0, score_bound=10.0),
    "proven, clip": ProvenColumns(20.0, 1e-3, unit="record", bound=50.0, variant="clip", model_bound=10.0),
}


def noisy_modes(algorithm: Method) -> dict[str, Any]:
    """Every noisy mode this method has, at a loose budget so that numbers stay of order one."""
    modes: dict[str, Any] = {"published": Published(epsilon=0.9, delta=1e-3)}
    modes |= COLUMN_UNITS if algorithm.name in VERTICAL else {"proven": Proven(epsilon=20.0, delta=1e-3, clip=1.0)}
    return {name: mode for name, mode in modes.items() if mode.mode in algorithm.modes}


def variants(algorithm: Method) -> dict[str, Method]:
    """The method with its `Proven` noise in each of the places that it offers."""
    kinds = get_args(get_type_hints(type(algorithm)).get("variant"))
    return {kind: replace(algorithm, variant=kind) for kind in kinds} or {"": algorithm}


def all_modes(algorithm: Method) -> dict[str, Any]:
    return {"none": NoPrivacy(), **noisy_modes(algorithm)}


MODES = [(name, mode) for name, case in EVERY.items() for mode in all_modes(case.algorithm)]
