"""A task: what is trained, how and under which promise, whoever holds the data. It travels as one frozen value."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import UnionType
from typing import Literal, cast

import numpy as np

from sottovoce import rules
from sottovoce.algorithms import ALGORITHMS, DPADMM, ADMMSharing, MaskedMoments, NoisyGD
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Asks, Layout, Method
from sottovoce.core.histogram import Evaluation
from sottovoce.core.participation import Everyone, Participation
from sottovoce.core.plain import Json
from sottovoce.core.products import Split
from sottovoce.core.questions import plain_asks
from sottovoce.core.random.streams import Streams
from sottovoce.core.round import AfterRound, Checkpoint, Outcome, Transport, train
from sottovoce.privacy.calibration import AnswerShape
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Privacy, PrivacyMode, Proven, Published, VerticalPrivacy
from sottovoce.privacy.noise_key import NoiseKey
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.losses import Loss
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import WithIntercept
from sottovoce.problems.rows.held_out import number_of_classes
from sottovoce.problems.vertical import VerticalFederation
from sottovoce.rules import AUTO, Chosen, PublicNumbers, Rule

USUAL_ROUNDS = 50  # of a method that is named without constants, where no rule knows better
Engine = Literal["auto", "numpy", "kernel"]
MOST_ROUNDS = 10**9
_OTHER_LAYOUT = {  # of the data: what an algorithm for the other layout is told
    "rows": "is for columns split between parties; give it a VerticalFederation (in a file: [data] split = [66, 57], "
    "the columns of each party, or [schema.parties])",
    "columns": "is for rows; columns are split here: use MaskedMoments(), ADMMSharing() or FDML()",
}
_FOR_COLUMNS = "ProvenColumns(epsilon=1.0, delta=1e-6), Published(...) or NoPrivacy() where columns are split"
_MODES: dict[Layout, tuple[UnionType, str]] = {  # privacy modes, and an example
    "rows": (Privacy, "Proven(epsilon=1.0, delta=1e-5, clip=1.0)"),
    "columns": (VerticalPrivacy, _FOR_COLUMNS),
}


def usual_for_columns(privacy: PrivacyMode) -> type[Method]:
    """The method that "auto" stands for where columns are split: with a budget the one that is of use with it.

    Without one, or with bounds that only noise on scores has a use for, it is admm-sharing.
    """
    return MaskedMoments if privacy.mode == "proven" and not getattr(privacy, "for_scores", False) else ADMMSharing


@dataclass(frozen=True)
class Task:
    """What is asked for.

    Parameters
    ----------
    algorithm, objective, privacy, participation, rounds
        The method, what it minimises, what is promised, who takes part, and for how many rounds.
    engine
        What computes gradients: "kernel" (compiled), "numpy", or by problem size ("auto").
    evaluate
        How the finished model is measured on records that their owners held out; None if it is not.
    rule
        Given: method and rounds are a stand-in, and the rule chooses them from public numbers (`settled`).
    chosen
        What a rule chose, and why.
    """

    algorithm: Method
    objective: Objective
    privacy: PrivacyMode
    participation: Participation = Everyone()  # noqa: RUF009 (frozen)
    rounds: int = 1
    engine: Engine = "auto"
    evaluate: Evaluation | None = None
    rule: Rule | None = None
    chosen: Chosen | None = None

    @cached_property
    def declared(self) -> Asks:
        """What the method asks for: read once, since noise is planned, and answers are given, by it."""
        return plain_asks(self.algorithm.asks())

    def asks(self) -> Asks:
        """All that is asked: what the method asks for, and one question about held-out records if they are counted."""
        if self.evaluate is None:
            return self.declared
        cells = self.evaluate.width(number_of_classes(self.objective.loss))
        return self.declared.then_histogram(self.rounds, self.evaluate.share, cells)

    @property
    def split(self) -> Split | None:
        """Who has which columns, if the method asks for their products; None if it does not."""
        return self.algorithm.split if isinstance(self.algorithm, MaskedMoments) else None

    @property
    def masked_moments(self) -> MaskedMoments:
        """The method, where it asks for products of columns: `split` is then not None."""
        return cast(MaskedMoments, self.algorithm)

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """How many of each client's records are trained on: public."""
        return sizes if self.evaluate is None else self.evaluate.training_sizes(sizes)

    @property
    def calibration(self) -> float:
        """The factor for logits with which probabilities are calibrated, if a rule chose the constants."""
        return 1.0 if self.chosen is None else self.chosen.calibration

    @classmethod
    def of(cls, algorithm: Method | str, objective: Objective, privacy: PrivacyMode, rounds: int | None) -> "Task":
        """A method that is given by name, without rounds, gets its constants by rule."""
        if not isinstance(algorithm, str):
            check.require(rounds is not None, "train", "needs rounds for a method whose constants are given")
            return cls(algorithm, objective, privacy, rounds=rounds or 1)
        name = check.one_of("train", "algorithm", algorithm, (*rules.METHODS, MaskedMoments.name))
        if name == MaskedMoments.name:
            return cls(MaskedMoments(), objective, privacy)
        free = rounds is None or name == AUTO
        rule = f"a rule chooses the rounds of {name!r} with its constants: leave rounds out, or give an object"
        check.require(free, "train", rule, rounds)
        return cls.by_rule(Rule(name, most=rounds or 0), objective, privacy)

    @classmethod
    def by_rule(
        cls, rule: Rule, objective: Objective, privacy: PrivacyMode, participation: Participation = Everyone(),  # noqa: B008
        engine: Engine = "auto", evaluate: Evaluation | None = None,
    ) -> "Task":  # fmt: skip
        """A task whose method, rounds and clip norm are settled by rule; until then a stand-in has their place."""
        noisy = rule.base_rate is None or privacy.mode == "proven"
        check.require(noisy, "rules", "a base_rate is leant on where noise is proven", privacy.mode, "Leave it out")
        stand_in = NoisyGD() if rule.name == AUTO else ALGORITHMS[rule.name]()
        settled_later = privacy.mode == "proven" or (privacy.mode == "none" and rule.name == AUTO)
        method = DPADMM() if privacy.mode == "published" and rule.name == AUTO else stand_in
        rounds, later = (1, rule) if settled_later else (rule.most or USUAL_ROUNDS, None)
        return cls(method, objective, privacy, participation, rounds, engine, evaluate, later)

    def __post_init__(self) -> None:
        check.whole("train", rounds=self.rounds)
        check.require(self.rounds <= MOST_ROUNDS, "train", f"rounds must be at most {MOST_ROUNDS:,}", self.rounds)

    def for_layout(self, layout: Layout) -> "Task":
        """The same task; where columns are split, "auto" stands for another method than where rows are."""
        if layout == "rows" or self.rule is None or self.rule.name != AUTO:
            return self
        method = usual_for_columns(self.privacy)
        rounds = 1 if method is MaskedMoments else self.rule.most or USUAL_ROUNDS
        return replace(self, algorithm=method(), rounds=rounds, rule=None)

    def settled(self, federation: FederatedData) -> "Task":
        """The same task with what follows from public numbers written out: method, weights of records, clip norm."""
        if federation.layout == "columns":
            return self._settled_columns(cast(VerticalFederation, federation))
        if self.rule is not None:
            width = federation.widths[0]
            return self.among(federation.n).ruled(federation.sizes, width, federation.row_bound).settled(federation)
        weight = federation.record_weight
        if self.evaluate is not None:
            weight = float(federation.n / self.training_sizes(federation.sizes).sum())
        objective = self.objective.weighing(weight)
        privacy = self.privacy.among(federation.n).clipping(objective.loss.slope_at_zero, federation.row_bound)
        return replace(self, objective=objective, privacy=privacy)

    def _settled_columns(self, federation: VerticalFederation) -> "Task":
        """The same where columns are split."""
        objective = self.objective.weighing(federation.record_weight)
        if not isinstance(self.algorithm, MaskedMoments):
            return replace(self, objective=objective, rule=None)
        algorithm = rules.fitted(self.algorithm, federation, objective, self.privacy)
        chosen = rules.chosen(algorithm) if self.chosen is None and self.algorithm.ridge == "auto" else self.chosen
        return replace(self, objective=objective, algorithm=algorithm, rule=None, chosen=chosen)

    def among(self, clients: int) -> "Task":
        """The same with what follows from the number of clients written out."""
        return replace(self, privacy=self.privacy.among(clients))

    def ruled(self, sizes: np.ndarray, columns: int, row_bound: float | None, epsilon: float | None = None) -> "Task":
        """What the rule chooses for clients of these sizes; `epsilon`: what is left of the budget for training."""
        rule, loss, privacy = self.rule, self.objective.loss, self.privacy
        if rule is None:
            return self
        check.require(self.objective.scale in ("mean", "records"), "rules", "are for scale 'records'", self.objective)
        clip = getattr(privacy, "clip", None)
        # Without a bound, rows are taken to be as long as the clip norm says, or columns to be about 1.
        likely = float(np.sqrt(columns)) if clip is None else float(clip) / rules.slope_of(loss)
        bound = likely if row_bound is None else row_bound
        if not isinstance(privacy, Proven):
            algorithm, rounds = rules.without_noise(loss, bound)
            return replace(self, algorithm=algorithm, rounds=min(rounds, rule.most or rounds), rule=None)
        mechanism, hint = privacy.mechanism, "Name a method with its constants and rounds"
        check.require(mechanism == "gaussian", "rules", "are for Gaussian noise", mechanism, hint)
        epsilon, sizes = privacy.epsilon if epsilon is None else epsilon, self.training_sizes(sizes)
        if self.evaluate is not None:
            epsilon *= float(np.sqrt(1 - self.evaluate.share))  # nearly what is left of mu² for training
        answers = self.participation.answers(len(sizes))
        check.require(answers > 0, "rules", "participation asks nobody; name clients")
        public = PublicNumbers(
            *(int(sizes.sum()), len(sizes), columns, epsilon, privacy.delta),
            contributors=privacy.among(len(sizes)).honest,
            unit=privacy.unit,
            relation=privacy.relation,
            loss=loss,
            row_bound=bound,
            clip=clip,
            largest=int(sizes.max()),
            smooth=self.objective.penalty.smooth,
            answers=answers,
            pace=self.participation.pace,
            base_rate=rule.base_rate,
            constant=rule.constant,
        )
        choice = rules.choose(public, rule.name, rule.most)
        clipped = replace(self, privacy=replace(privacy, clip=choice.clip), rule=None)
        return replace(clipped, algorithm=choice.algorithm, rounds=choice.rounds, chosen=choice.chosen)

    def check(self, layout: Layout) -> None:
        """Refuse parts that do not fit each other, or data that are split in this way."""
        check.of_kind("train", "algorithm", self.algorithm, Algorithm, "DPADMM(rho=0.1)")
        check.of_kind("train", "objective", self.objective, Objective, "Objective(Logistic(), L2(1e-6))")
        check.of_kind("train", "participation", self.participation, Participation, "Everyone()")
        if self.algorithm.layout != layout:
            raise check.InvalidInput(f"train: {self.algorithm.name} {_OTHER_LAYOUT[layout]}")
        check.of_kind("train", "privacy", self.privacy, *_MODES[layout])
        self.check_method()

    def check_method(self) -> None:
        """Refuse a mode, a loss, a penalty or a proof that the method does not have."""
        if self.privacy.mode not in self.algorithm.modes:
            known = ", ".join(sorted(self.algorithm.modes))
            raise check.NoGuarantee(f"{self.algorithm.name}: has no {self.privacy.mode!r} variant (it has: {known})")
        asks = self.declared.kinds
        one_score = self.algorithm.layout == "rows" or self.objective.loss.outputs == 1 or "products" in asks
        rule = "a loss of one score per sample is needed where columns are split"
        check.require(one_score, "train", rule, self.objective.loss)
        weighted = bool({"moments", "products"}.intersection(asks)) and hasattr(self.objective.loss, "class_weight")
        rule = "makes a quadratic of a loss that bends alike for all classes: no class_weight"
        check.require(not weighted, self.algorithm.name, rule, hint="Use a method that asks for gradients")
        penalty = self.objective.penalty
        counted = self.algorithm.layout == "rows" or not isinstance(penalty, WithIntercept) or penalty.penalised
        rule = "where columns are split the penalty counts the intercept too: the sensitivity of a fit rests on it"
        check.require(counted, "train", rule, hint="Give penalise_intercept=True")
        why_not = self.algorithm.why_not_sums(self.privacy.promise) if self.privacy.sums else ""
        if why_not:
            raise check.NoGuarantee(
                f"{self.algorithm.name}: is not for observer='sums' with unit {self.privacy.promise!r}: {why_not}. Use "
                "noisy-gd, dp-sgd, moments or moments-then-gradients, with unit 'client' also dp-fedavg; or "
                "observer='server'"
            )
        self.algorithm.check(self.objective.penalty)
        self.privacy.check(self.declared, self.objective.penalty)
        if self.evaluate is not None:
            self._check_evaluation()

    def _check_evaluation(self) -> None:
        """Refuse to count held-out records where no proof covers it, or where there is nothing to count."""
        privacy, loss = self.privacy, self.objective.loss
        check.require(self.algorithm.layout == "rows", "evaluate", "is for rows, and columns are split here")
        hint = "For numbers, measure on public test rows"
        check.require(loss.classification, "evaluate", "counts classes, and this loss is for numbers", loss.name, hint)
        check_threshold("evaluate", loss, cast(Evaluation, self.evaluate).threshold)
        rule = "counts of held-out records are not summed yet; use observer='server', or public test rows"
        check.require(not privacy.sums, "evaluate", rule, "sums")
        if privacy.promise not in ("none", "record") or getattr(privacy, "mechanism", "gaussian") != "gaussian":
            raise check.NoGuarantee(
                "evaluate: noisy counts are proven for Proven(unit='record') with Gaussian noise, and need none with "
                "NoPrivacy(); there is no proof for this privacy mode, unit or noise"
            )

    def play(
        self,
        transport: Transport,
        streams: Streams,
        resume: Checkpoint | None = None,
        record_every: int = 1,
        after_round: AfterRound | None = None,
    ) -> Outcome:
        """Train over the clients behind `transport`, from the start or from a checkpoint."""
        asked = self.rounds, self.objective.penalty, self.participation
        return train(self.algorithm, transport, *asked, streams, resume, record_every, after_round)

    def plan(
        self, sizes: np.ndarray, columns: int, spent: Mapping[Event, int] | None = None, row_bound: float | None = None
    ) -> tuple[Event, ...]:
        """What each answer is, one event for each kind of question; nothing where there is no budget.

        `sizes`: records of each client; `columns`: of a row, or of the widest party where columns are split.
        """
        most, shape = self.participation.most(self.rounds), self.shape(columns, int(sizes[0]))
        sizes = self.training_sizes(sizes)
        return self.privacy.plan(self.asks(), self.rounds, sizes, spent, row_bound, most, shape)

    def shape(self, columns: int, samples: int) -> AnswerShape:
        """How long answers are."""
        loss, split = self.objective.loss, self.split
        dim = samples if self.algorithm.layout == "columns" else loss.model_size(columns)
        return AnswerShape(dim if split is None else split.size, columns, loss.slope_at_zero)

    def key(self, streams: Streams, digests: np.ndarray, events: tuple[Event, ...], *more: object) -> NoiseKey:
        """What noise is bound to: the task, and the digests of each client's own data."""
        settings: tuple[object, ...] = (self.algorithm, self.objective, self.privacy, self.participation, self.rounds)
        settings += () if self.evaluate is None else (self.evaluate,)
        return NoiseKey.of_task(streams, digests, *settings, *(events or (None,)), *more)

    def claim_terms(self, sizes: np.ndarray, row_bound: float | None, rounds: int) -> Json:
        """The terms of a paper's claim, with what this run is known to do that the claim does not cover."""
        terms = self.algorithm.claim_terms(sizes, rounds)
        if self.algorithm.layout == "columns":
            return terms
        unmet = [*terms.get("unmet", ())]
        claimed, rate = terms.get("client_rate", 1.0), self.participation.rate(len(sizes))
        if claimed < rate:
            chance = f"clients take part with a chance of {claimed:g} in it (client_rate)"
            unmet.append(f"{chance}, and of up to {rate:g} here")
        if self.declared.batch and "data_rate" not in terms:
            unmet.append("its noise is for the gradient over all records, and batches are drawn")
        if isinstance(self.privacy, Published):
            unmet += self.privacy.unmet(row_bound)
        return terms | {"unmet": tuple(unmet)}


def check_threshold(who: str, loss: Loss, threshold: float) -> None:
    """Refuse a threshold of a loss that has none."""
    usable = threshold == 0.5 or (loss.outputs == 1 and loss.probabilities)
    rule = "a threshold is a probability of the second of two classes, by a logistic loss"
    check.require(usable, who, rule, threshold, "Leave it out")


def warn_about_delta(privacy: PrivacyMode, federation: FederatedData) -> None:
    """A delta of 1/size allows a mechanism that publishes one record in the clear."""
    largest = int(np.argmax(federation.sizes))
    size = int(federation.sizes[largest])
    if privacy.promise == "record" and privacy.budget is not None and privacy.budget[1] >= 1 / size:
        warnings.warn(
            f"Proven: delta = {privacy.budget[1]:g} is not below 1/size for client {federation.names[largest]!r} with "
            f"{size} records: such a delta would allow giving one record away; use a smaller one",
            check.PrivacyWarning,
            stacklevel=4,
        )
