"""What a finished run gives where columns are split; and other models from the sums that it opened.

Once the noisy products of split columns are open (`algorithms/masked_moments.py`), a model for another penalty, or of
some of the columns, needs nobody's answer. That is post-processing, so it costs nothing.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np

from sottovoce.algorithms import MaskedMoments
from sottovoce.algorithms.masked_moments import Server
from sottovoce.core import check, products
from sottovoce.core.arrays import MatrixLike
from sottovoce.core.contract import KnownNoise, Layout
from sottovoce.core.round import Outcome
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import describe_objective, named
from sottovoce.problems.federation import with_ones
from sottovoce.problems.penalties import Penalty, WithIntercept
from sottovoce.problems.schema import Schema
from sottovoce.problems.schema.effects import Effect
from sottovoce.problems.vertical import matrices, summed_scores


@dataclass(frozen=True, repr=False)
class VerticalResult(Result):
    """A model whose parts stay with their parties: `model` holds them end to end, `widths` says whose is which."""

    widths: tuple[int, ...] = ()
    sums: np.ndarray | None = field(default=None, kw_only=True)  # products of columns, as they were opened
    layout: ClassVar[Layout] = "columns"

    def with_penalty(self, penalty: Penalty) -> "VerticalResult":
        """The model for another penalty, from the same opened sums: it costs nothing. For masked-moments.

        A path of ridges, a lasso, non-negative coefficients or a box: give `L2`, `L1`, `ElasticNet` or `Box`.
        """
        method, sums = self._opened()
        before = self.objective.penalty
        whole = replace(before, penalty=penalty) if isinstance(before, WithIntercept) else penalty
        model = method.minimised(sums, whole)
        server = Server(model, products.to_limbs(sums), np.ones((*sums.shape[:-1], 1)))
        known = KnownNoise(method.noise, 1.0, method.curvature, whole, 1)
        errors = None if self.guarantee.epsilon is None else method.standard_errors(server, known)
        table = self.config["objective"]
        kept = {name: table[name] for name in ("fit_intercept", "penalise_intercept") if name in table}
        described = describe_objective(replace(self.objective, penalty=penalty)) | kept
        return replace(
            self,
            model=model[..., 0, :],
            objective=replace(self.objective, penalty=whole),
            standard_errors=None if errors is None else errors[..., 0, :],
            metrics={},
            config=self.config | {"objective": described},
        )

    def alone(self, m: int) -> "VerticalResult":
        """The model of party m's columns alone, from the same opened sums: it costs nothing. For masked-moments.

        All other coefficients but the bias are zero.
        """
        self._must_be_party("alone", m)
        method, sums = self._opened()
        model = method.minimised(sums, self.objective.penalty, method.columns_of(m))
        return replace(self, model=model[..., 0, :], standard_errors=None, metrics={})

    def _opened(self) -> tuple[MaskedMoments, np.ndarray]:
        """The method with all its constants, and the sums that it opened."""
        rule, hint = "no products were opened", "Train with masked-moments"
        method = check.given(method_of(self), "Result", rule, hint)
        return method, check.given(self.sums, "Result", rule, hint)[..., None, :]

    def party_model(self, m: int) -> np.ndarray:
        """The part of party m, which stays with it: (columns,) or (runs, columns)."""
        self._must_be_party("party_model", m)
        ends, outputs = list(itertools.accumulate(self.widths, initial=0)), self.objective.loss.outputs
        released = self._released()
        by_output = released.reshape(*released.shape[:-1], outputs, -1)[..., ends[m] : ends[m + 1]]
        return by_output.reshape(*released.shape[:-1], -1)

    def partial_scores(self, m: int, X: object) -> np.ndarray:
        """What party m sends for new rows of its columns: one value per row, and nothing else.

        After training with a schema these are rows as they are; the sum of what all parties send is `scores`.
        """
        self._must_be_party("partial_scores", m)
        if self.schema is not None:
            part = self.schema.part(list(self.schema.parties)[m]).transform(X)
        else:
            (part,) = matrices(f"party {m + 1}", [cast(MatrixLike, X)], [self.widths[m] - self._ones(m)])
            part = with_ones(part) if self._ones(m) else part
        return summed_scores([part], self.party_model(m), [self.widths[m]], self.objective.loss.outputs)

    def scores(self, X: object) -> np.ndarray:
        """Scores of new rows: the sum of what the parties send.

        Rows are one array per party or, after training with a schema, one table with the columns of all parties.
        """
        if self.schema is not None:
            parts, _ = self.schema.encode_parts(X, labels=False)
        else:
            ones = [self._ones(m) for m in range(len(self.widths))]
            parts = matrices("predict", cast(Sequence[MatrixLike], X), np.subtract(self.widths, ones).tolist())
            parts = [with_ones(part) if one else part for part, one in zip(parts, ones, strict=True)]
        return summed_scores(parts, self._released(), self.widths, self.objective.loss.outputs)

    def _must_be_party(self, who: str, m: int) -> None:
        known = check.is_whole(m, 0) and m < len(self.widths)
        check.require(known, who, f"parties have numbers from 0 to {len(self.widths) - 1}", m)

    def _ones(self, m: int) -> int:
        """How many columns of ones party m adds to its rows: one for the intercept, if it holds the labels."""
        return int(self.objective.intercept and m == self.config.get("data", {}).get("holder", 0))

    def _effects_of(self, schema: Schema, weights: np.ndarray) -> list[Effect]:
        """Those of each party's columns, before it scales its own part of a row."""
        self._released()
        parts = enumerate(schema.parties)
        effects = [super(VerticalResult, self)._effects_of(schema.part(name), self.party_model(m)) for m, name in parts]
        return [each for of_party in effects for each in of_party]

    def _released(self) -> np.ndarray:
        if self.model.shape[-1] > 0:
            return self.model
        kept_back = "no model was released, so no score of a new row is covered by the guarantee"
        hint = "Train with ProvenColumns(model=True)"
        why = f"{kept_back}. {hint}" if self.rounds else f"there is no model, {self.stopped}"
        raise check.NoGuarantee(f"predict: {why}")


RESULTS: dict[Layout, type[Result]] = {"rows": Result, "columns": VerticalResult}


def opened_sums(outcome: Outcome) -> np.ndarray:
    """The products of columns that a finished run opened."""
    return products.from_limbs(cast(Server, outcome.server).sums)[..., 0, :]


def method_of(result: Result) -> MaskedMoments | None:
    """The method of a run that opened products, with all its constants; None for other runs."""
    table = result.config.get("algorithm", {})
    if table.get("name") != MaskedMoments.name:
        return None
    return named({MaskedMoments.name: MaskedMoments}, "algorithm", table, "[algorithm]")
