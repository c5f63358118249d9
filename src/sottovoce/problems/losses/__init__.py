"""Losses of linear models: what one row costs, as a function of its margin."""

from sottovoce.problems.losses.base import Loss, newton_prox
from sottovoce.problems.losses.signed import Logistic, SmoothedHinge
from sottovoce.problems.losses.softmax import Softmax
from sottovoce.problems.losses.squared import Huber, Squared
from sottovoce.problems.losses.weighted import WeightedLogistic, WeightedSoftmax

__all__ = [
    "LOSSES",
    "Huber",
    "Logistic",
    "Loss",
    "SmoothedHinge",
    "Softmax",
    "Squared",
    "WeightedLogistic",
    "WeightedSoftmax",
    "newton_prox",
]

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Logistic, Softmax, Squared, Huber, SmoothedHinge, WeightedLogistic, WeightedSoftmax)
}
