"""What the noise of published mechanisms is made of, where several papers use the same."""

from math import log, sqrt

from sottovoce.core import check
from sottovoce.core.contract import Array, Claim, Site


def gradient_change(site: Site) -> Array:
    """By how much a client's gradient can change, in L2, if one of its records is replaced."""
    return 2 * site.f.gradient_bound * site.f.weight


def gaussian_std(sensitivity: Array, claim: Claim) -> Array:
    """Standard deviation of the classical Gaussian mechanism for one round."""
    hint = "Give Published(delta=1e-5)"
    check.require(claim.delta > 0, "Published", "Gaussian noise needs a delta in (0, 1)", claim.delta, hint)
    return sensitivity * sqrt(2 * log(1.25 / claim.delta)) / claim.epsilon


def needs_paper_variant(who: str, variant: str, paper: str, site: Site) -> None:
    """Refuse to add a paper's noise to a variant that is not the paper's."""
    if site.claim is not None and variant != paper:
        raise check.NoGuarantee(f"{who}: variant {variant!r} is not the paper's; Published needs variant={paper!r}")
