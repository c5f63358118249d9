"""What an answer should have been: its exact part and its sensitivity, computed by the audit itself.

From the question that was asked, the rows, and what is promised; nothing of the code that answered is used but the
formula of the loss and of the penalty's prox.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sottovoce.auditing import promise as audit_promise
from sottovoce.auditing.neighbours import Linear
from sottovoce.auditing.record import Answer
from sottovoce.core.contract import Asks
from sottovoce.privacy.modes import Proven, ProvenColumns, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective


@dataclass(frozen=True)
class Expected:
    """An answer should be `public` + `exact` + noise of scale multiplier · `sensitivity`, (runs?, clients, 1).

    In published mode the paper's own scale stands for the sensitivity, and the multiplier is 1. `exact` is what the
    door says itself where `own` is False.
    """

    public: np.ndarray | float
    exact: np.ndarray
    sensitivity: np.ndarray
    kind: str = "gaussian"
    own: bool = True


@dataclass(frozen=True)
class World:
    """The data and the promise that answers are held against."""

    federation: Any
    objective: Objective
    privacy: Any
    asks: Asks

    def expect(self, answer: Answer) -> Expected | None:
        """None for what is not noisy, or where noise cannot be told from the rest."""
        if isinstance(self.privacy, Published):
            return self._published(answer)
        if isinstance(self.privacy, ProvenColumns):
            return self._columns(answer) if answer.kind in ("fit", "model") else None
        if self.privacy.unit == "client":
            return self._upload(answer) if answer.kind == "release" else None
        makers = {
            "gradient": self._gradient,
            "argmin": self._argmin,
            "prox-steps": self._prox_steps,
            "descent": self._descent,
        }
        return makers[answer.kind](answer) if answer.kind in makers else None

    # Rows.

    @property
    def norm(self) -> int:
        return 1 if isinstance(self.privacy, Proven) and self.privacy.mechanism == "laplace" else 2

    @property
    def kind(self) -> str:
        return "laplace" if self.norm == 1 else "gaussian"

    @property
    def linear(self) -> bool:
        """Whether gradients are the same at every point."""
        return isinstance(self.objective.loss, Linear)

    @property
    def row_bound(self) -> float:
        """What no row may be longer than for the sensitivity to hold; 0 where it holds for all rows."""
        rests = self.privacy.unit == "record" and self.asks.only.kind in ("prox-steps", "descent")
        return float(self.federation.row_bound or 0.0) if rests else 0.0

    def weight(self, local: np.ndarray) -> np.ndarray:
        sizes = self.federation.sizes[local][:, None]
        return 1.0 / sizes if self.objective.scale == "mean" else np.ones(sizes.shape)

    def rate(self, local: np.ndarray) -> np.ndarray:
        sizes = self.federation.sizes[local]
        if not self.asks.batch:
            return np.ones((len(local), 1))
        fixed = getattr(self.privacy, "relation", "replace-one") == "replace-one"
        return audit_promise.batch_rates(self.asks.batch, sizes, fixed)[:, None]

    def one_gradient(self, local: np.ndarray) -> np.ndarray:
        """How far one record moves a gradient."""
        return audit_promise.gradient_sensitivity(self.privacy, self.weight(local), self.rate(local))

    def clipped_gradient(self, w: Any, local: np.ndarray, cap_rows: bool = False) -> np.ndarray:
        """Σ of each record's gradient, cut to the clip norm, times the weight; of all records.

        `cap_rows`: it is rows that are shortened, so that no slope makes a gradient longer than the clip norm.
        """
        federation: Federation = self.federation
        loss, clip = self.objective.loss, self.privacy.clip
        points, parts = np.asarray(w, dtype=np.float64), []
        for place, client in enumerate(local):
            mine = slice(federation.offsets[client], federation.offsets[client + 1])
            X, y = np.asarray(federation.X[mine], dtype=np.float64), loss.check_labels(federation.y[mine])
            lengths = np.abs(X).sum(axis=1) if self.norm == 1 else np.sqrt(np.square(X).sum(axis=1))
            if cap_rows:
                longest = clip / loss.lipschitz
                X = X * np.where(lengths > longest, longest / np.where(lengths > 0, lengths, 1.0), 1.0)[:, None]
            point = points[..., place if points.shape[-2] > 1 else 0, :]
            slopes = loss.slope(point @ X.T, y)
            if not cap_rows:
                sizes = np.abs(slopes) * lengths
                slopes = slopes * np.where(sizes > clip, clip / np.where(sizes > 0, sizes, 1.0), 1.0)
            parts.append(slopes @ X)
        return np.stack(parts, axis=-2) * self.weight(local)

    def _gradient(self, answer: Answer) -> Expected | None:
        one = self.one_gradient(answer.local)
        if (self.rate(answer.local) < 1).any() or self.objective.loss.outputs > 1:
            made = answer.made  # which records were drawn is secret: the door has to be asked
            return None if made is None else Expected(0.0, made.exact, one, self.kind, own=False)
        return Expected(0.0, self.clipped_gradient(answer.asked["w"], answer.local), one, self.kind)

    def _argmin(self, answer: Answer) -> Expected | None:
        asked = {"linear": 0.0, "ridge": 0.0} | answer.asked
        rho, ridge = np.asarray(asked["rho"], dtype=np.float64), asked["ridge"]
        moved = audit_promise.argmin_sensitivity(self.one_gradient(answer.local), rho, ridge)
        if not self.linear:
            return None if answer.made is None else Expected(0.0, answer.made.exact, moved, own=False)
        slope = self.clipped_gradient(asked["centre"], answer.local, cap_rows=True)
        exact = (rho * asked["centre"] - asked["linear"] - slope) / (rho + ridge)
        return Expected(0.0, exact, moved)

    def _prox_steps(self, answer: Answer) -> Expected | None:
        start, spec, local = answer.asked["start"], answer.asked["spec"], answer.local
        one, loss = self.one_gradient(local), self.objective.loss
        smooth = np.inf if self.federation.row_bound is None else loss.curvature * self.federation.row_bound**2
        smooth = smooth * self.weight(local) * self.federation.sizes[local][:, None]
        kept = all(np.all(smooth <= 2 * np.asarray(keep)) for keep in spec.keep)
        absorbed = not spec.fresh or (self.norm == 2 and loss.convex and loss.outputs == 1 and kept)
        most = 2 * self.privacy.clip * self.weight(local) * self.federation.sizes[local][:, None]
        moved = audit_promise.prox_sensitivity(spec, one, most, absorbed)
        if self.asks.batch or loss.outputs > 1:
            return None if answer.made is None else Expected(spec.centre, answer.made.exact, moved, self.kind, False)
        x, ends = start - spec.centre, []
        fixed = None if spec.fresh else self.clipped_gradient(start if spec.at is None else spec.at, local)
        for keep, total in zip(spec.keep, spec.total, strict=True):
            slope = self.clipped_gradient(spec.centre + x, local) if fixed is None else fixed
            x = spec.h.prox((keep * x + spec.push - slope) / total, 1.0 / np.asarray(total))
            ends.append(x)
        exact = np.mean(ends, axis=0) if spec.average else x
        return Expected(spec.centre, exact, moved, self.kind)

    def _descent(self, answer: Answer) -> Expected | None:
        start, spec, local = answer.asked["start"], answer.asked["spec"], answer.local
        if not self.linear:
            return None  # the noise of a step goes through the curvature of the steps after it
        smooth = self.objective.loss.curvature * (self.federation.row_bound or np.inf) ** 2
        smooth = smooth * self.weight(local) * self.federation.sizes[local][:, None]
        x = start
        for _ in range(spec.count):
            slope = self.clipped_gradient(x, local)
            x = x - spec.step * (slope + spec.ridge * x + spec.pull * (x - spec.centre))
        return Expected(0.0, x, audit_promise.chain_deviation(spec, self.one_gradient(local), smooth))

    def _upload(self, answer: Answer) -> Expected:
        u, centre = answer.asked["u"], answer.asked["centre"]
        return Expected(centre, shortened(u - centre, self.privacy.clip), np.full((1, 1), 2 * self.privacy.clip))

    def _published(self, answer: Answer) -> Expected | None:
        noise = answer.asked.get("noise")
        if answer.kind != "release" or noise is None:
            return None
        scale = np.broadcast_to(noise.scale, (*answer.given.shape[:-1], 1))
        return Expected(0.0, np.asarray(answer.asked["u"]), scale, noise.kind) if np.all(scale > 0) else None

    # Columns.

    def _columns(self, answer: Answer) -> Expected:
        privacy: ProvenColumns = self.privacy
        target, rho = (
            (answer.asked["kept"].target, answer.asked["kept"].rho)
            if answer.kind == "model"
            else (answer.asked["target"], np.atleast_2d(answer.asked["rho"]))
        )
        u = shortened(target, privacy.bound) if privacy.variant == "ridge" else target
        mu = self.objective.penalty.strong / rho
        widest = max(self.federation.widths)
        exact = np.zeros((*u.shape[:-1], widest if answer.kind == "model" else u.shape[-1]))
        for place, party in enumerate(answer.local):
            part = np.asarray(self.federation.parts[party])
            if privacy.column_bound is not None:
                part = shortened(part.T, privacy.column_bound).T
            elif privacy.row_bound is not None:
                part = shortened(part, privacy.row_bound)
            left, lengths, right = np.linalg.svd(part, full_matrices=False)
            along = u[..., place, :] @ left
            ridge = mu[..., place if mu.shape[-2] > 1 else 0, :]
            if answer.kind == "model":
                fitted = (along * lengths / (lengths**2 + ridge)) @ right
                exact[..., place, : fitted.shape[-1]] = fitted
            else:
                exact[..., place, :] = (along * lengths**2 / (lengths**2 + ridge)) @ left.T
        if privacy.variant == "clip":
            exact = shortened(exact, float(privacy.model_bound or 0) if answer.kind == "model" else privacy.bound)
        elif privacy.unit == "record" and answer.kind == "fit":
            exact = np.clip(exact, -float(privacy.score_bound or 0), float(privacy.score_bound or 0))
        moved = audit_promise.model_sensitivity if answer.kind == "model" else audit_promise.scores_sensitivity
        return Expected(0.0, exact, moved(privacy, u, mu))


def shortened(vectors: np.ndarray, bound: float) -> np.ndarray:
    """Vectors longer than the bound, cut to it."""
    lengths = np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))
    return vectors * np.where(lengths > bound, bound / np.where(lengths > 0, lengths, 1.0), 1.0)
