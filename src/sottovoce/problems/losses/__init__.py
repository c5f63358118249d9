"""Losses of linear models: what one row costs, as a function of its margin."""

from sottovoce.core.loss import Loss as Loss
from sottovoce.problems.losses.base import newton_prox as newton_prox
from sottovoce.problems.losses.signed import Logistic as Logistic
from sottovoce.problems.losses.signed import SmoothedHinge as SmoothedHinge
from sottovoce.problems.losses.softmax import Softmax as Softmax
from sottovoce.problems.losses.squared import Huber as Huber
from sottovoce.problems.losses.squared import Squared as Squared
from sottovoce.problems.losses.weighted import WeightedLogistic as WeightedLogistic
from sottovoce.problems.losses.weighted import WeightedSoftmax as WeightedSoftmax

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Logistic, Softmax, Squared, Huber, SmoothedHinge, WeightedLogistic, WeightedSoftmax)
}
