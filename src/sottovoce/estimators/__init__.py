"""Estimators and scalers for scikit-learn: they train over data of many owners, and state their guarantee."""

from sottovoce.estimators.columns import VerticalClassifier, VerticalRegressor
from sottovoce.estimators.rows import FederatedClassifier, FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor", "VerticalClassifier", "VerticalRegressor"]
