"""The distinguishing game: two neighbouring data sets, many runs of the true code, every message as evidence.

The result is a lower bound on epsilon. A claimed value below it is false; a value above it is not proven. The strongest
of four statistics that applies is used:

1. exact: the shift between the neighbours does not depend on the past, or the transcript is linear in Gaussian noise.
   Epsilon is computed, and runs only check that this is so (`ratio.py`, `exact.py`);
2. computed: if batches are secret, the exact power of the best linear score (`exact.py`);
3. ratio: the true likelihood ratio of each run, computed by forcing the values of one run on another (`ratio.py`);
4. score: a linear score of the messages, learnt on pilot runs. It trusts nothing but the messages (`score.py`).

The first three trust that the noise has the distribution that the code states, after a check of it. In `Proven` mode
they count every noisy answer as seen, which is more than the server sees, and check that messages are functions of
these answers.
"""

import time
from dataclasses import replace
from typing import Literal

from sottovoce.auditing.exact import by_batches, by_probing
from sottovoce.auditing.finding import Comparison, Finding, shown
from sottovoce.auditing.game import Game, Player, Sampling, columns_promise, worst_case
from sottovoce.auditing.ratio import by_ratio
from sottovoce.auditing.score import CONFIDENCE, by_score
from sottovoce.core import check
from sottovoce.core.plain import Progress, silent

__all__ = ["Comparison", "Finding", "Game", "Player", "Progress", "audit", "columns_promise", "shown", "worst_case"]
_STATISTICS = {"auto": (by_batches, by_ratio, by_probing, by_score), "score": (by_score,)}  # the first that applies


def audit(
    game: Game,
    runs: int = 20_000,
    seed: int = 0,
    statistic: Literal["auto", "score"] = "auto",
    confidence: float = CONFIDENCE,
    progress: Progress = silent,
) -> Finding:
    """Play the game, and compare the bound on epsilon with the claim. Ctrl-C ends it with the result so far.

    Parameters
    ----------
    game
        What is run on which data sets: see `worst_case`.
    runs, seed, confidence
        Number of runs, their seed, and the confidence of the bound, if it has to be estimated from runs.
    statistic
        "auto": the strongest that applies. "score": the one that trusts nothing but the messages.
    progress
        Called with what is being done, how much is done, and of how much.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.audit import audit, worst_case
    >>> finding = audit(worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3), runs=64)
    >>> finding.verdict, finding.statistic, round(finding.worst.lower, 3)
    ('not refuted', 'exact', 1.0)
    """
    check.whole("audit", at_least=64, runs=runs)
    check.whole("audit", at_least=0, seed=seed)
    check.between("audit", 0, 1, confidence=confidence)
    check.one_of("audit", "statistic", statistic, _STATISTICS)
    rule = "the game is played with seeded noise; the path 'secure' checks noise from the operating system"
    check.require(not game.privacy.secret_noise, "audit", rule, "secure")
    begun, sampling = time.perf_counter(), Sampling(runs, seed, confidence, progress)
    bounds = (bound(game, sampling) for bound in _STATISTICS[statistic])
    finding = next(finding for finding in bounds if finding is not None)
    return replace(finding, seconds=time.perf_counter() - begun)
