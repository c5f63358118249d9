"""The privacy of a run in plain words. Every sentence follows from the guarantee it is given."""

import math
from collections.abc import Iterator
from typing import cast

from sottovoce.privacy.guarantee import Guarantee, short_unit
from sottovoce.report.numbers import rounded_up

PRIVATE = "simulation only, not released"
EFFECTS = (
    "By how much a score changes: for one unit of a number, or for a level next to the mean of all levels. Changes "
    "belong to a row before it is divided by its length, and are as noisy as the model."
)


def headline(guarantee: Guarantee) -> str:
    """One line: what is proven."""
    if guarantee.mode == "none":
        return "No privacy"
    if guarantee.epsilon is None or guarantee.delta is None:
        return "No proven privacy"
    simulated = ", simulated noise" if guarantee.noise.startswith("simulation") else ""
    return f"Proven: ε = {guarantee.epsilon:.6g}, δ = {guarantee.delta:g} per {short_unit(guarantee.unit)}{simulated}"


def meaning(guarantee: Guarantee) -> list[str]:
    """What the numbers promise, for someone who has never met an epsilon."""
    if guarantee.mode == "none":
        return [
            "Exact answers were sent in the clear. Whoever sees the messages or the model may learn single records "
            "from them."
        ]
    if guarantee.epsilon is None or guarantee.delta is None:
        return [
            "The noise is what a paper states, and no proof that we accept supports a number for it. Treat the "
            "messages and the model as not protected. What the paper claims, and what is wrong with it:",
            *guarantee.text.splitlines(),
        ]
    unit, epsilon = short_unit(guarantee.unit), guarantee.epsilon
    factor = rounded_up(math.exp(epsilon), 3) if epsilon < 10 else f"e^{rounded_up(epsilon, 3)}"
    return [
        f"The promise is about {guarantee.unit}. It holds against {guarantee.observer}.",
        f"Suppose such an observer wants to tell which of two versions of that {unit} was used, after a "
        "fair coin chose one, and knows everything else. They are right at most "
        f"{rounded_up(100 * success_bound(guarantee), 1)} % of the time, whatever they compute; a blind guess is right "
        f"50 % of the time.{' A bound so near to 100 % promises little.' if promises_little(guarantee) else ''}",
        f"In the words of the proof: whatever can be observed is at most {factor} times as likely under one version "
        f"as under the other, plus {guarantee.delta:g}.",
        f"Accountant: {guarantee.accountant}. Noise: {guarantee.noise}.",
    ]


def caveats(guarantee: Guarantee, runs_shown: int) -> Iterator[str]:
    """What a reader of the page itself must know."""
    if guarantee.noise.startswith("simulation"):
        yield (
            "This is a simulation. Its noise can be computed again from the seed on this page, so the promise "
            "describes the method; it does not protect the data behind this very run from readers of this page."
        )
    if guarantee.epsilon is not None and runs_shown > 1:
        yield (
            f"The promise is for one training run alone, and this page shows {runs_shown}. Whoever is shown "
            "several runs on the same data can learn more than from one of them."
        )


def promises_little(guarantee: Guarantee) -> bool:
    return success_bound(guarantee) > 0.95


def success_bound(guarantee: Guarantee) -> float:
    """How often the best guess between two equally likely neighbours is right, at most.

    That is (1 + TV)/2 with the total variation TV <= (e^ε − 1 + 2δ)/(e^ε + 1).
    """
    epsilon, delta = cast(tuple[float, float], (guarantee.epsilon, guarantee.delta))
    shrink = math.exp(-epsilon)  # the same formula, in a form that does not overflow
    return min(1.0, (1 + shrink * delta) / (1 + shrink))
