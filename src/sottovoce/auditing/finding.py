"""What an audit found: numbers against claims, checks against promises, and one verdict."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sottovoce.auditing.game import Game
from sottovoce.privacy import claims
from sottovoce.privacy.modes import Published

FAR_BELOW = 0.5  # of the claim: no honest method is below in a game that is made to show all
SETTLED = 3  # rounds: before, a method may not have asked for all that it has paid for
ROUNDING = 1e-6  # relative: budgets are used up to the last digit, and an exact value is one of many roundings
Kind = Literal["exact", "computed", "ratio", "score", "guesses"]


@dataclass(frozen=True)
class Comparison:
    """One claim against what was found."""

    what: str
    claimed: float
    delta: float
    lower: float  # epsilon is at least this

    @property
    def refuted(self) -> bool:
        return self.lower > self.claimed * (1 + ROUNDING)


Verdict = Literal["refuted", "suspicious", "not refuted"]


@dataclass(frozen=True)
class Check:
    """One look at how the true code does what it promises."""

    path: str  # which way through the code, such as "float32 rows"
    name: str
    seen: str
    promised: str
    verdict: Verdict


@dataclass(frozen=True)
class Finding:
    """What an audit found, in numbers and in words."""

    method: str
    mode: str
    statistic: Kind
    evidence: str
    neighbours: str
    runs: int
    confidence: float  # 1 for exact values
    comparisons: tuple[Comparison, ...]
    seconds: float
    interrupted: bool = False
    tight: bool = False  # whether an honest mechanism would give away nearly all that was promised
    checks: tuple[Check, ...] = ()

    @property
    def worst(self) -> Comparison:
        """The comparison that says most against the claim."""
        return max(self.comparisons, key=lambda one: one.lower / one.claimed if one.claimed else math.inf)

    @property
    def refuted(self) -> bool:
        return any(one.refuted for one in self.comparisons) or any(one.verdict == "refuted" for one in self.checks)

    @property
    def far_below(self) -> bool:
        """Whether messages give away so much less than promised that something must have gone wrong unnoticed."""
        return self.tight and self.worst.lower < FAR_BELOW * self.worst.claimed

    @property
    def verdict(self) -> Verdict:
        if self.refuted:
            return "refuted"
        doubtful = self.far_below or any(one.verdict == "suspicious" for one in self.checks)
        return "suspicious" if doubtful else "not refuted"

    def __str__(self) -> str:
        sure = {"exact": "exactly", "computed": "at least"}.get(
            self.statistic, f"at least, with {self.confidence:.0%} confidence,"
        )
        lines = [
            f"{self.method} ({self.mode}), {self.neighbours}.",
            *(
                f"{one.what}: claimed epsilon {one.claimed:.4g} at delta {one.delta:g}; it is {sure} {shown(one.lower)}"
                f"{': REFUTED' if one.refuted else ''}."
                for one in self.comparisons
            ),
            *([self._suspicion()] if self.far_below else []),
            *(
                f"{one.path}: {one.name}: {one.seen}; promised: {one.promised}: {one.verdict.upper()}."
                for one in self.checks
                if one.verdict != "not refuted"
            ),
            *([self._checked()] if self.checks else []),
            f"Verdict: {self.verdict}. {self.meaning}",
            f"Evidence: {self.evidence}. {self._played()}",
        ]
        return "\n".join(lines)

    @property
    def meaning(self) -> str:
        """What this can and cannot show."""
        if any(one.refuted for one in self.comparisons):
            return (
                "A data set and its neighbour were found that messages tell apart better than the claim allows. That "
                "settles the claim; it says nothing about the damage on typical data."
            )
        if self.refuted:
            return "What the code did is not what is promised, so the proof behind the promise does not apply to it."
        if self.verdict == "suspicious":
            return "Nothing was found that breaks the claim, but what was seen is not what an honest mechanism shows."
        return (
            "This attack found nothing against the claim. That proves nothing: another data set or a better attack may "
            "show more. What holds is what is proven."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        mine = {**asdict(self), "verdict": self.verdict, "far_below": self.far_below, "meaning": self.meaning}
        mine["comparisons"] = [
            asdict(one) | {"lower": one.lower if math.isfinite(one.lower) else "infinite", "refuted": one.refuted}
            for one in self.comparisons
        ]
        return mine

    def _suspicion(self) -> str:
        return (
            f"The messages give away {shown(self.worst.lower)} where {self.worst.claimed:.4g} is promised, and this "
            "data set would show nearly all of it: noise may be reused, or one error hides another: SUSPICIOUS."
        )

    def _checked(self) -> str:
        paths = sorted({one.path for one in self.checks})
        bad = sum(one.verdict != "not refuted" for one in self.checks)
        outcome = "all as promised" if bad == 0 else f"{bad} not as promised"
        return f"Checks of noise, clipping, batches and charges: {len(self.checks)}, {outcome} ({', '.join(paths)})."

    def _played(self) -> str:
        text = f"{self.runs} run{'s' if self.runs > 1 else ''} in {self.seconds:.1f} s"
        if self.statistic in ("exact", "computed"):
            text += ", to check that the law is the one computed from"
        return f"Interrupted after {text}." if self.interrupted else f"Played: {text}."


def shown(epsilon: float) -> str:
    """Rounded down: a lower bound must not grow in print."""
    if not math.isfinite(epsilon):
        return "infinite"
    digits = 3 if epsilon < 10 else 2
    return f"{math.floor(epsilon * 10**digits * (1 + ROUNDING)) / 10**digits:.{digits}f}"


# -------------------------------------------------------------------------------------------- what is claimed


def compare(
    game: Game, bound: Callable[[Any, float], float | None], last_only: bool | None = False
) -> list[Comparison] | None:
    """The claims about this game next to `bound(values, delta)`: of the whole run, and of single uploads.

    Of single uploads the worst is taken, or the last (`last_only`), or none (None). None if a bound has no formula.
    """
    epsilon, delta, of_each = claimed(game)
    whole = bound(slice(None), delta)
    if whole is None:
        return None
    found = [Comparison(f"all {game.rounds} rounds", epsilon, delta, whole)]
    if of_each and last_only is not None and isinstance(game.privacy, Published):
        single = game.privacy.delta if not _claim_is_pure(game) else 0.0
        uploads = range(game.rounds - 1 if last_only else 0, game.rounds)
        each = [(bound(slice(k, k + 1), single) or 0.0, k + 1) for k in uploads]
        worst, k = max(each)
        found.append(Comparison(f"upload {k}, given those before", game.privacy.epsilon, single, worst))
    return found


def claimed(game: Game) -> tuple[float, float, bool]:
    """(epsilon, delta) of the whole run, and whether each upload has a claim of its own.

    A paper that states no total is held to what follows from its rounds: their epsilons and deltas add up.
    """
    privacy = game.privacy
    if game.claim is not None or not isinstance(privacy, Published):
        epsilon, delta = game.claim or (privacy.epsilon, privacy.delta)
        return epsilon, delta, False
    claim = claims.CLAIMS.get(game.algorithm.name)
    delta = 0.0 if _claim_is_pure(game) else privacy.delta
    terms = game.algorithm.claim_terms(game.neighbours.first.sizes, game.rounds)
    rates = {name: terms[name] for name in ("data_rate", "client_rate") if name in terms}
    total = None if claim is None else claim.total(claims.Asked(privacy.epsilon, delta, game.rounds, **rates))
    single = claim is None or claim.span == "per round"
    if total is None:
        return game.rounds * privacy.epsilon, min(game.rounds * delta, 0.5), single
    return float(total[0]), float(total[1]), single


def _claim_is_pure(game: Game) -> bool:
    claim = claims.CLAIMS.get(game.algorithm.name)
    return claim is not None and claim.pure


def finding(
    game: Game,
    statistic: Kind,
    evidence: str,
    runs: int,
    confidence: float,
    comparisons: list[Comparison],
    interrupted: bool = False,
) -> Finding:
    found = tuple(comparisons)
    name, words = game.algorithm.name, game.neighbours.words
    proven = game.privacy.mode == "proven" and game.claim is None
    tight = statistic == "exact" and proven and game.neighbours.worst and game.rounds >= SETTLED
    return Finding(
        name, game.privacy.mode, statistic, evidence, words, runs, confidence, found, 0.0, interrupted, tight
    )
