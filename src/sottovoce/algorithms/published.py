"""What the noise of published mechanisms is made of, where several papers use the same."""

from sottovoce.core import check
from sottovoce.core.contract import Array, Noise, Site
from sottovoce.privacy.paper_noise import gaussian_factor


def gradient_change(site: Site) -> Array:
    """By how much a client's gradient can change, in L2, if one of its records is replaced."""
    return 2 * site.f.gradient_bound * site.f.weight


def gaussian_noise(sensitivity: Array, site: Site) -> Noise | None:
    """Noise of the classical Gaussian mechanism for one round of `Published`; None in the other modes."""
    if site.claim is None:
        return None
    return Noise("gaussian", sensitivity * gaussian_factor(1.0, site.claim.delta) / site.claim.epsilon)


def needs_paper_variant(who: str, variant: str, paper: str, site: Site) -> None:
    """Refuse to add a paper's noise to a variant that is not the paper's."""
    if site.claim is not None and variant != paper:
        raise check.NoGuarantee(f"{who}: variant {variant!r} is not the paper's; Published needs variant={paper!r}")
