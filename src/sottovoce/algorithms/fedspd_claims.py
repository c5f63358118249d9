"""What the FedSPD-DP paper claims for a run, in numbers: from how a run draws clients and records.

Where clients have different numbers of records (`sizes`), the one with the largest loss counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.privacy import paper_noise
from sottovoce.privacy.batches import batch_rates


@dataclass(frozen=True)
class Sampling:
    """How often a client takes part, and how its records are drawn then: the fields of `FedSPDDP` of these names."""

    local_steps: int
    batch: float
    client_rate: float
    replacement: bool

    def data_rate(self, sizes: ArrayLike) -> float:
        """Chance that a record is drawn in a round, q of (22)-(23)."""
        m = np.atleast_1d(np.asarray(sizes))
        drawn = np.rint(batch_rates(self.batch, m, whole=True) * m).astype(int)
        pairs = zip(drawn.tolist(), m.tolist(), strict=True)
        return max(paper_noise.fedspd_data_rate(self.local_steps, b, size, self.replacement) for b, size in pairs)

    def total(self, epsilon: float, rounds: int, sizes: ArrayLike) -> float:
        """The paper's epsilon for the whole run, from that of one round (21)."""
        return paper_noise.fedspd_total(epsilon, rounds, self.data_rate(sizes), self.client_rate)

    def epsilon(self, total: float, rounds: int, sizes: ArrayLike) -> float:
        """The epsilon of one round, `Published(epsilon=...)`, for a total over the run (36)."""
        return paper_noise.fedspd_epsilon(total, rounds, self.data_rate(sizes), self.client_rate)

    def terms(self, sizes: ArrayLike) -> dict[str, object]:
        """For `Algorithm.claim_terms`."""
        m = np.asarray(sizes)
        unmet = ("it is for batches drawn with replacement, these were not",) * self.replacement
        terms: dict[str, object] = {"data_rate": None, "client_rate": self.client_rate, "unmet": unmet}
        if self.replacement or np.all(self.local_steps * batch_rates(self.batch, m, whole=True) < 1):
            return terms | {"data_rate": self.data_rate(m)}
        return terms  # (22) has no q < 1 then, and (21) no total
