"""From events to epsilon, and from a budget back to noise.

Every number is an upper bound with a proof; where several proofs apply, the smallest bound counts. What no proof
covers is refused with `NoGuarantee`.

| events | bound | module |
|---|---|---|
| Gaussian, full batch | the Gaussian trade-off, exact (Dong, Roth & Su 2022) | `gaussian` |
| Gaussian, Poisson batch | add/remove: privacy loss distribution (dp-accounting), Rényi | `losses`, `renyi` |
| Gaussian, fixed-size batch | replace-one: Rényi (Wang, Balle & Kasiviswanathan 2019) | `renyi` |
| discrete Gaussian on a known grid (`GridEvent`) | as Gaussian, by Theorem 2 | `discrete` |
| other discrete Gaussian, Gaussian chain | zCDP (Canonne, Kamath & Steinke 2020) | `renyi` |
| Laplace, randomised response | the sum of the epsilons, or zCDP with rho = epsilon²/2 | `bounds` |
| mixed | Rényi or zCDP for all together; pure events may instead add their epsilons | `bounds` |

Two rules keep the numbers honest. A noise multiplier is always noise over the sensitivity *of the event's own
relation*, so no accountant may rescale it (dp-accounting's PLD would, for replace-one). And an event with secret
batches is never worse than the same event without: it is a mixture of neighbouring pairs with common weights, and
the divergences are jointly convex. So "sampling ignored" is one of the bounds.
"""

from sottovoce.privacy.accounting.bounds import accountant_name as accountant_name
from sottovoce.privacy.accounting.bounds import epsilon as epsilon
from sottovoce.privacy.accounting.bounds import table as table
from sottovoce.privacy.accounting.calibration import affordable as affordable
from sottovoce.privacy.accounting.calibration import calibrate as calibrate
from sottovoce.privacy.accounting.calibration import with_least_noise as with_least_noise
from sottovoce.privacy.accounting.composition import Spent as Spent
from sottovoce.privacy.accounting.gaussian import gaussian_delta as gaussian_delta
from sottovoce.privacy.accounting.gaussian import gaussian_epsilon as gaussian_epsilon
from sottovoce.privacy.accounting.gaussian import gaussian_mu as gaussian_mu
