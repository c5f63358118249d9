"""What an audit found: bounds next to claims, checks next to promises, and one verdict."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from sottovoce.auditing.game import Game
from sottovoce.core.plain import Json
from sottovoce.privacy import claims

FAR_BELOW = 0.5  # of the claim: in a game that shows everything, no honest method stays below this
SETTLED = 3  # rounds: in shorter runs a method may not have asked for everything that it has paid for
ROUNDING = 1e-6  # relative: budgets are used up to the last digit, and an exact value is rounded
Statistic = Literal["exact", "computed", "ratio", "score", "guesses"]
Conclusion = Literal["refuted", "suspicious", "not refuted"]


@dataclass(frozen=True)
class Comparison:
    """One claim next to what was found."""

    what: str
    claimed: float
    delta: float
    lower: float  # a lower bound on epsilon

    @property
    def refuted(self) -> bool:
        return bool(self.lower > self.claimed * (1 + ROUNDING))  # a claim may be a number of NumPy's


@dataclass(frozen=True)
class Check:
    """One check that the true code does what it promises."""

    path: str  # which way through the code, such as "float32 rows"
    name: str
    seen: str
    promised: str
    verdict: Conclusion


@dataclass(frozen=True)
class Finding:
    """What an audit found, in numbers and in words."""

    method: str
    mode: str
    statistic: Statistic
    evidence: str
    neighbours: str
    runs: int
    confidence: float  # 1 for exact values
    comparisons: tuple[Comparison, ...]
    seconds: float
    interrupted: bool = False
    tight: bool = False  # whether an honest mechanism would reveal nearly everything that was promised
    checks: tuple[Check, ...] = ()

    @property
    def worst(self) -> Comparison:
        """The comparison with the strongest evidence against its claim."""
        return max(self.comparisons, key=lambda one: one.lower / one.claimed if one.claimed else math.inf)

    @property
    def refuted(self) -> bool:
        return any(one.refuted for one in self.comparisons) or any(one.verdict == "refuted" for one in self.checks)

    @property
    def far_below(self) -> bool:
        """Whether messages reveal so much less than promised that there must be an error somewhere."""
        return self.tight and bool(self.worst.lower < FAR_BELOW * self.worst.claimed)

    @property
    def verdict(self) -> Conclusion:
        if self.refuted:
            return "refuted"
        doubtful = self.far_below or any(one.verdict == "suspicious" for one in self.checks)
        return "suspicious" if doubtful else "not refuted"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        estimated = f"at least, with {self.confidence:.0%} confidence,"
        sure = {"exact": "exactly", "computed": "at least"}.get(self.statistic, estimated)
        yield f"{self.method} ({self.mode}), {self.neighbours}."
        for one in self.comparisons:
            claim, refuted = f"claimed epsilon {one.claimed:.4g} at delta {one.delta:g}", one.refuted
            yield f"{one.what}: {claim}; it is {sure} {shown(one.lower)}{': REFUTED' if refuted else ''}."
        if self.far_below:
            seen = f"The messages reveal {shown(self.worst.lower)} where {self.worst.claimed:.4g} is promised"
            why = "this data set would show nearly all of it: noise may be reused, or one error may hide another"
            yield f"{seen}, although {why}: SUSPICIOUS."
        bad = [one for one in self.checks if one.verdict != "not refuted"]
        for one in bad:
            yield f"{one.path}: {one.name}: {one.seen}; promised: {one.promised}: {one.verdict.upper()}."
        if self.checks:
            paths = ", ".join(sorted({one.path for one in self.checks}))
            outcome = f"{len(bad)} not as promised" if bad else "all as promised"
            yield f"Checks of noise, clipping, batches and charges: {len(self.checks)}, {outcome} ({paths})."
        yield f"Verdict: {self.verdict}. {self.meaning}"
        played = f"{self.runs} run{'s' if self.runs > 1 else ''} in {self.seconds:.1f} s"
        if self.statistic in ("exact", "computed"):
            played += ", to check the distribution that the number was computed from"
        how = "Interrupted after" if self.interrupted else "Played:"
        yield f"Evidence: {self.evidence}. {how} {played}."

    @property
    def meaning(self) -> str:
        """What this can and cannot show."""
        if any(one.refuted for one in self.comparisons):
            evidence = "The audit found two neighbouring data sets whose messages differ more than the claim allows"
            return f"{evidence}. The claim is false; how much typical data reveal is another question."
        if self.refuted:
            return "The code does not do what is promised, so the proof behind the promise does not apply to it."
        if self.verdict == "suspicious":
            return "Nothing breaks the claim, but an honest mechanism would look different."
        why = "another data set or a better attack may show more. Only a proof can show that a claim holds"
        return f"This attack found nothing against the claim. That proves nothing: {why}."

    def to_dict(self) -> Json:
        """Plain values, for JSON."""
        values = {**asdict(self), "verdict": self.verdict, "far_below": self.far_below, "meaning": self.meaning}
        values["comparisons"] = [
            asdict(one) | {"lower": one.lower if math.isfinite(one.lower) else "infinite", "refuted": one.refuted}
            for one in self.comparisons
        ]
        return values


def shown(epsilon: float) -> str:
    """Rounded down: a lower bound must not grow in print."""
    if not math.isfinite(epsilon):
        return "infinite"
    digits = 3 if epsilon < 10 else 2
    return f"{math.floor(epsilon * 10**digits * (1 + ROUNDING)) / 10**digits:.{digits}f}"


# -------------------------------------------------------------------------------------------- what is claimed


def conclude(
    game: Game,
    statistic: Statistic,
    evidence: str,
    runs: int,
    bound: Callable[[slice, float], float | None],
    uploads: Literal["all", "last", "none"] = "none",
    confidence: float = 1.0,
    interrupted: bool = False,
) -> Finding | None:
    """Compare the claims about this game with `bound(values, delta)`, of the whole run and of single uploads.

    `uploads` says which single uploads are compared, where a claim is about each of them; the worst is reported. None
    if there is no formula for a bound.
    """
    epsilon, delta, claim_of_each = claimed(game)
    whole = bound(slice(None), delta)
    if whole is None:
        return None
    comparisons = [Comparison(f"all {game.rounds} rounds", epsilon, delta, whole)]
    if claim_of_each is not None and uploads != "none":
        of_one, delta = claim_of_each
        numbers = range(game.rounds - 1 if uploads == "last" else 0, game.rounds)
        worst, k = max((bound(slice(k, k + 1), delta) or 0.0, k + 1) for k in numbers)
        comparisons.append(Comparison(f"upload {k}, given those before", of_one, delta, worst))
    mode, neighbours = game.privacy.mode, game.neighbours
    tight = statistic == "exact" and mode == "proven" and game.claim is None and neighbours.worst
    tight = tight and game.rounds >= SETTLED
    return Finding(
        game.algorithm.name, mode, statistic, evidence, neighbours.words, runs, confidence, tuple(comparisons), 0.0,
        interrupted, tight,
    )  # fmt: skip


def claimed(game: Game) -> tuple[float, float, tuple[float, float] | None]:
    """(epsilon, delta) of the whole run, and the (epsilon, delta) of each upload if there is a claim about it.

    If a paper states no total, the total that follows from its rounds counts: epsilons and deltas are added.
    """
    privacy, stated = game.privacy, game.claim or game.privacy.budget
    if stated is not None:
        return *stated, None
    claim = claims.CLAIMS.get(game.algorithm.name)
    delta = 0.0 if claim is not None and claim.pure else privacy.delta
    terms = game.algorithm.claim_terms(game.neighbours.first.sizes, game.rounds)
    rates = {name: terms[name] for name in ("data_rate", "client_rate") if name in terms}
    total = None if claim is None else claim.total(claims.Asked(privacy.epsilon, delta, game.rounds, **rates))
    of_each = (privacy.epsilon, delta) if claim is None or claim.span == "per round" else None
    if total is None:
        return game.rounds * privacy.epsilon, min(game.rounds * delta, 0.5), of_each
    return float(total[0]), float(total[1]), of_each
