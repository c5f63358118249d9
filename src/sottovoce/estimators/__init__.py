"""The scikit-learn face: estimators that train over data of many owners and carry their guarantee with them."""

from sottovoce.estimators.columns import VerticalClassifier
from sottovoce.estimators.rows import FederatedClassifier, FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor", "VerticalClassifier"]
