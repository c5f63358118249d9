"""Training over columns that are split between parties: what `simulate.train` does differently then."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import check
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Algorithm, LabelOracle, VerticalAlgorithm
from sottovoce.core.participation import Participation
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import Exchange, Outcome
from sottovoce.experiment.local import Result, Simulator
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.charges import Charges, charges_of
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.histories import Counted, History, Kept
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers
from sottovoce.privacy.doors.party import (
    PartyDoor,
    bounded,
    check_parties,
    label_event,
    label_key,
    label_oracle,
    open_parties,
    plan_parties,
    randomised_labels,
)
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import Guarantee, state_columns_guarantee, state_guarantee
from sottovoce.privacy.modes import NoPrivacy, ProvenColumns, Published, VerticalPrivacy
from sottovoce.privacy.noise_key import NoiseKey, parts_digests
from sottovoce.problems.columns import Columns
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import Matrix, VerticalFederation, matrices

if TYPE_CHECKING:
    from sottovoce.experiment.label_flips import LabelFlips

Test = tuple[Sequence[Any], ArrayLike]


@dataclass
class VerticalSimulator(Simulator):
    """All parties of a vertical federation in one process, and the labels."""

    federation: VerticalFederation  # type: ignore[assignment]
    rows: Columns  # type: ignore[assignment]
    door: PartyDoor  # type: ignore[assignment]
    test: tuple[list[Matrix], np.ndarray] | None  # type: ignore[assignment]
    labels: LabelOracle = field(kw_only=True)
    label_epsilon: float | None = field(default=None, kw_only=True)  # spent on labels, where ledgers count runs
    label_charges: History | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.n, self.dim = self.federation.n, self.federation.samples
        self._everyone = np.arange(self.n)
        self._states: Any = None
        self._algorithm: Any = None
        self._k = 0

    def start(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        super().start(algorithm)

    def exchange(self, algorithm: Algorithm, down: Any, active: np.ndarray, k: int) -> Exchange | None:
        self._k = k
        return super().exchange(algorithm, down, active, k)

    def measure(self, model: np.ndarray) -> dict[str, np.ndarray]:
        """Objective of the parties' exact models (a simulation may look), test loss of what a release would hold."""
        numbers: dict[str, np.ndarray] = {}
        kept, loss = self._algorithm.kept(self._states), self.objective.loss
        if self.measure_training:
            x = self.door.looked_at(kept, self._everyone)
            scores = self.rows.predict(x, self._everyone).sum(axis=-2)
            data_term = loss.value(scores, loss.check_labels(self.federation.y)).sum(axis=-1)
            weight = label_weight(self.objective, self.dim)
            numbers["objective"] = weight * data_term + self.objective.penalty.value(self.flat(x))
        noisy = isinstance(getattr(self.door, "privacy", None), ProvenColumns)
        if self.test is not None and (self.measure_training or not noisy):
            X, y = self.test
            x = self.door.would_be(kept, self._everyone, self._k)
            if x is not None:
                scores = summed_scores(X, self.flat(x), self.federation.widths)
                numbers["test_loss"] = loss.value(scores, y).mean(axis=-1)
                if loss.classification:
                    numbers["test_accuracy"] = (loss.predict(scores) == y).mean(axis=-1)
        if self.ledger is not None:
            numbers["epsilon"] = self.ledger.epsilons(roughly=True).max(axis=-1)
        return numbers

    def flat(self, x: np.ndarray) -> np.ndarray:
        """The parties' models end to end, without padding: (runs?, columns of all)."""
        return np.concatenate([x[..., m, :width] for m, width in enumerate(self.federation.widths)], axis=-1)

    def models(self, k: int) -> np.ndarray:
        """The models for prediction, end to end, made after round k and charged; of length 0 where there are none."""
        nothing = self.flat(np.zeros((*self._shape(self.n), self.rows.widest)))[..., :0]
        if k == 0 or not self.door.affords_models(self._everyone):
            return nothing
        x = self.door.models(self._algorithm.kept(self._states), self._everyone, k)
        return nothing if x is None else self.flat(x)

    def charges(self, rounds: int) -> Charges | None:
        if self.ledger is None:
            return None
        return charges_of(self.ledger, self.door.event, rounds, self.label_charges)  # type: ignore[attr-defined]

    def together(self) -> float:
        """The epsilon of all parties' answers taken together (of the worst run)."""
        from sottovoce.privacy import accounting

        assert self.ledger is not None
        worst = 0.0
        for run in range(self.streams.runs or 1):
            at = {"run": run} if isinstance(self.ledger, MemoryLedger) else {}
            spent: dict[Any, int] = {}
            for party in range(self.n):
                for event, count in self.ledger.spent(party, **at).items():
                    spent[event] = spent.get(event, 0) + count
            worst = max(worst, accounting.epsilon(spent, self.delta or 0.0))
        return worst


@dataclass(frozen=True)
class VerticalResult(Result):
    """A model whose parts stay with their parties: `model` holds them end to end, `widths` says whose is which."""

    widths: tuple[int, ...] = ()

    def party_model(self, m: int) -> np.ndarray:
        """The part of party m, which stays with it: (columns,) or (runs, columns)."""
        check.whole("party_model", at_least=0, m=m)
        check.require(
            m < len(self.widths), "party_model", f"m must be the number of a party, 0..{len(self.widths) - 1}", m
        )
        ends = list(itertools.accumulate(self.widths, initial=0))
        return self._released()[..., ends[m] : ends[m + 1]]

    def partial_scores(self, m: int, X: Any) -> np.ndarray:
        """What party m sends for new rows of its columns: one value per row, and nothing else."""
        (part,) = matrices(f"party {m + 1}", [X], [self.widths[m]])
        return summed_scores([part], self.party_model(m), [self.widths[m]])

    def scores(self, X: Any) -> np.ndarray:
        """Scores of new rows, given as one array per party: the sum of what the parties send."""
        parts = matrices("predict", X, self.widths)
        return summed_scores(parts, self._released(), self.widths)

    def _released(self) -> np.ndarray:
        if self.model.shape[-1] == 0:
            raise NoGuarantee(
                "predict: no model was released, so no score of a new row is covered by the guarantee. Train with "
                "ProvenColumns(model=True)"
            )
        return self.model


def summed_scores(parts: Sequence[Matrix], model: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Σ_m X_m x_m: (runs?, rows)."""
    ends = list(itertools.accumulate(widths, initial=0))
    pieces = [model[..., a:b] for a, b in itertools.pairwise(ends)]
    return np.sum([(part @ piece.T).T for part, piece in zip(parts, pieces, strict=True)], axis=0)


def labels_of(federation: VerticalFederation, objective: Objective) -> LabelOracle:
    """What the server may ask of the labels as they are."""
    return label_oracle(
        objective.loss, objective.loss.check_labels(federation.y), label_weight(objective, federation.samples)
    )


def label_weight(objective: Objective, samples: int) -> float:
    return 1.0 / samples if objective.scale == "mean" else 1.0


def column_key(
    streams: Streams,
    parts: Sequence[Matrix],
    algorithm: Algorithm,
    objective: Objective,
    privacy: VerticalPrivacy,
    participation: Participation,
    rounds: int,
    event: Event | None,
) -> NoiseKey:
    """What noise is bound to where columns are split: everything that decides a party's answers."""
    task = (algorithm, objective, privacy, participation, rounds, event)
    return NoiseKey.of_task(streams, parts_digests(parts), *task)


def assemble(
    algorithm: Algorithm,
    federation: VerticalFederation,
    objective: Objective,
    privacy: VerticalPrivacy,
    participation: Participation,
    rounds: int,
    streams: Streams,
    test: Test | None,
    ledgers: Path | None = None,
    run: str = "",
) -> VerticalSimulator:
    """Check that the parts fit, and put them together."""
    _check_kinds(algorithm, objective, privacy, participation)
    loss, penalty, asks = objective.loss, objective.penalty, algorithm.asks()
    algorithm.check(penalty)
    check_parties(privacy, asks, penalty)
    y = loss.check_labels(federation.y)
    loss.check_both_classes(y)
    exact = Columns(bounded(federation.parts, privacy), penalty)
    event, ledger, on_labels, label_charges = None, None, None, None
    if isinstance(privacy, ProvenColumns):
        event = plan_parties(privacy, asks, participation.most(rounds))
    key = column_key(streams, federation.parts, algorithm, objective, privacy, participation, rounds, event)
    if isinstance(privacy, ProvenColumns):
        budget = Budget(privacy.epsilon, privacy.delta)
        if ledgers is not None:
            check.require(streams.runs is None, "train", "ledgers are for one run at a time", streams.runs)
        if privacy.label_epsilon is not None:
            label_charges = Counted.of({label_event(privacy.label_epsilon): 1})
            flips = label_key(key, y) if privacy.noise == "seeded" else None
            if ledgers is None:
                y = randomised_labels(y, privacy.label_epsilon, flips)
            else:
                flipped, rows = _flips(ledgers, federation).drawn(y, privacy.label_epsilon, flips)
                y, label_charges, on_labels = y * flipped, Kept.of(rows), privacy.label_epsilon
        if ledgers is None:
            ledger = MemoryLedger(budget, (federation.n,) if streams.runs is None else (streams.runs, federation.n))
        else:
            ledger = OwnerLedgers.open(ledgers, federation.names, federation.data(), budget, run)
    elif ledgers is not None:
        raise InvalidInput(
            f"train: ledgers count what Proven answers cost; privacy={type(privacy).__name__} has no budget"
        )
    door = open_parties(privacy, event, ledger, exact, asks, key=key, clients=np.arange(federation.n))
    labels = label_oracle(loss, y, label_weight(objective, federation.samples))
    public = None if test is None else _test_set(objective, federation, test)
    return VerticalSimulator(
        federation, objective, exact, door, streams, ledger, public,
        labels=labels, label_epsilon=on_labels, label_charges=label_charges,
    )  # fmt: skip


def _flips(folder: Path, federation: VerticalFederation) -> "LabelFlips":
    """The label flips of a simulation with ledgers, and the ledger of the labels."""
    from sottovoce.experiment.label_flips import LabelFlips

    home, owner = folder / "labels", f"{federation.names[federation.holder]}, labels"
    return LabelFlips(home / "flips.npz", home / "0000.ledger", owner, fingerprint(federation.y, federation.y[:0]))


def _check_kinds(
    algorithm: Algorithm, objective: Objective, privacy: VerticalPrivacy, participation: Participation
) -> None:
    if not isinstance(algorithm, VerticalAlgorithm):
        check.of_kind("train", "algorithm", algorithm, Algorithm, "ADMMSharing()")
        raise InvalidInput(f"train: {algorithm.name} is for rows; columns are split here: use ADMMSharing() or FDML()")
    check.of_kind("train", "objective", objective, Objective, "Objective(Logistic(), L2(1e-6))")
    check.of_kind("train", "participation", participation, Participation, "Everyone()")
    example = "ProvenColumns(epsilon=1.0, delta=1e-6, unit='record', ...), Published(...) or NoPrivacy()"
    check.of_kind("train", "privacy", privacy, VerticalPrivacy, f"{example} where columns are split")
    if privacy.mode not in algorithm.modes:
        known = ", ".join(sorted(algorithm.modes))
        raise NoGuarantee(f"{algorithm.name}: has no {privacy.mode!r} variant (it has: {known})")
    one = objective.loss.outputs == 1
    check.require(one, "train", "a loss of one score per sample is needed where columns are split", objective.loss)


def _test_set(objective: Objective, federation: VerticalFederation, test: Test) -> tuple[list[Matrix], np.ndarray]:
    pair = isinstance(test, tuple) and len(test) == 2
    check.require(pair, "train", "test must be a pair ([X_1, ..., X_M], y)", type(test).__name__)
    parts, labels = matrices("test", test[0], federation.widths), objective.loss.check_labels(test[1])
    rows = parts[0].shape[0]
    check.require(len(labels) == rows, "test", f"y must have one entry per row ({rows})", len(labels))
    return parts, labels


def result(
    simulator: VerticalSimulator,
    outcome: Outcome,
    algorithm: Algorithm,
    privacy: Any,  # a VerticalPrivacy: `assemble` has checked it
    config: dict[str, Any],
    lasting: bool,
) -> VerticalResult:
    """The finished run. In `Proven` mode the models for prediction are made, and charged, here."""
    model = simulator.models(outcome.rounds)
    stated: Guarantee
    charges: Charges | None = None
    if isinstance(privacy, ProvenColumns):
        charges = simulator.charges(outcome.rounds)
        known = simulator.statement(algorithm, charges, lasting, forgotten="seed" not in config["run"])
        assert known is not None
        together = simulator.together() if privacy.unit == "record" else None
        stated = state_columns_guarantee(privacy, known, together, model.shape[-1] > 0, simulator.label_epsilon)
    else:
        assert isinstance(privacy, NoPrivacy | Published)
        terms = algorithm.claim_terms(simulator.federation.sizes, outcome.rounds)
        stated = state_guarantee(privacy, algorithm.name, outcome.rounds, claim_terms=terms)
    return VerticalResult(
        model, outcome.history, stated, outcome.rounds, outcome.stopped, simulator.objective, config, charges,
        widths=simulator.federation.widths,
    )  # fmt: skip
