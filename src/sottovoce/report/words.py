"""The privacy of a run in plain words. Every sentence follows from the guarantee it is given, or is not said."""

import math

from sottovoce.privacy.guarantee import Guarantee, short_unit

PRIVATE = "simulation only, not released"


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
    unit = short_unit(guarantee.unit)
    return [
        f"The promise is about {guarantee.unit}. It holds against {guarantee.observer}.",
        f"Suppose such an observer wants to tell which of two versions of that {unit} was used, after a "
        "fair coin chose one, and knows everything else. They are right at most "
        f"{_up(100 * most_right(guarantee), 1)} % of the time, whatever they compute; a blind guess is right 50 % of "
        f"the time.{' A bound so near to 100 % promises little.' if promises_little(guarantee) else ''}",
        f"In the words of the proof: whatever can be observed is at most {_factor(guarantee.epsilon)} times as likely "
        f"under one version as under the other, plus {guarantee.delta:g}.",
        f"Accountant: {guarantee.accountant}. Noise: {guarantee.noise}.",
    ]


def caveats(guarantee: Guarantee, runs_shown: int) -> list[str]:
    """What a reader of the page itself must know."""
    said = []
    if guarantee.noise.startswith("simulation"):
        said.append(
            "This is a simulation. Its noise can be computed again from the seed on this page, so the promise "
            "describes the method; it does not protect the data behind this very run from readers of this page."
        )
    if guarantee.epsilon is not None and runs_shown > 1:
        said.append(
            f"The promise is for one training run alone, and this page shows {runs_shown}. Whoever is shown "
            "several runs on the same data can learn more than from one of them."
        )
    return said


def promises_little(guarantee: Guarantee) -> bool:
    return most_right(guarantee) > 0.95


def most_right(guarantee: Guarantee) -> float:
    """The best guess between two equally likely neighbours: (1 + TV)/2 with TV <= (e^ε − 1 + 2δ)/(e^ε + 1)."""
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    shrink = math.exp(-guarantee.epsilon)  # the same, and nothing overflows
    return min(1.0, (1 + shrink * guarantee.delta) / (1 + shrink))


def _factor(epsilon: float) -> str:
    return _up(math.exp(epsilon), 3) if epsilon < 10 else f"e^{_up(epsilon, 3)}"


def _up(value: float, digits: int) -> str:
    """Rounded up: a bound must stay one when it is printed."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"
