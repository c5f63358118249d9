"""The distinguishing game: two neighbouring data sets, many runs of the true code, every message as evidence.

What is found is a lower bound on epsilon. Above a claimed value, the claim is false; below, nothing is shown. Of
four statistics the strongest that applies is taken:

1. exact: the shift between the neighbours does not depend on the past, or the transcript is linear in Gaussian noise;
   epsilon is then computed, and runs only check that this is so (`audit_ratio.py`, `audit_gaussian.py`);
2. computed: where batches are secret, the exact power of the best linear score (`audit_batches.py`);
3. ratio: the true likelihood ratio of each run, computed with the values of one run forced on another;
4. score: a linear score of the messages, learnt on pilot runs. It trusts nothing but what was seen.

The first three trust that the noise follows the law the code states, after a look at it. In `Proven` mode they take
every noisy answer as seen, which is more than the server sees, and check that messages are functions of the answers.
"""

import time
from dataclasses import replace
from typing import Literal

from sottovoce.auditing import statistics as audit_statistics
from sottovoce.auditing.exact import by_batches, by_probing, by_ratio
from sottovoce.auditing.finding import Comparison as Comparison
from sottovoce.auditing.finding import Finding, shown
from sottovoce.auditing.game import Game, Player, Progress, columns_promise, silent, worst_case
from sottovoce.auditing.score import by_score
from sottovoce.core import check

Statistic = Literal["auto", "score"]
__all__ = ["Comparison", "Finding", "Game", "Player", "Progress", "audit", "columns_promise", "shown", "worst_case"]


def audit(
    game: Game,
    runs: int = 20_000,
    seed: int = 0,
    statistic: Statistic = "auto",
    confidence: float = audit_statistics.CONFIDENCE,
    progress: Progress = silent,
) -> Finding:
    """Play, and compare what was found with what is claimed. Ctrl-C ends it with what was played so far.

    Examples
    --------
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.audit import audit, worst_case
    >>> found = audit(worst_case(sv.DPADMM(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=3), runs=64)
    >>> found.verdict, found.statistic, round(found.worst.lower, 3)
    ('not refuted', 'exact', 1.0)
    """
    check.whole("audit", at_least=64, runs=runs)
    check.whole("audit", at_least=0, seed=seed)
    check.between("audit", 0, 1, confidence=confidence)
    check.one_of("audit", "statistic", statistic, ("auto", "score"))
    seeded = getattr(game.privacy, "noise", "seeded") == "seeded"
    check.require(
        seeded, "audit", "the game is played with seeded noise; see the path 'secure' for the other", "secure"
    )
    begun = time.perf_counter()
    found = None
    if statistic == "auto":
        if game.secret_batches:
            found = by_batches(game, seed, progress)
        else:
            found = by_ratio(game, runs, seed, confidence, progress) or by_probing(game, seed, progress)
    if found is None:
        found = by_score(game, runs, seed, confidence, progress)
    return replace(found, seconds=time.perf_counter() - begun)
