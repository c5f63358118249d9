"""What each paper says its own noise promises, and what that promise is worth.

One file per paper. Each has the paper's formulas first, one function per equation, as they are printed (misprints are
corrected and named); they set the noise of a `Published` run. Then the claim: the statement, its assumptions, whom it
is meant to protect against, and our verdict. A verdict is "sound" only where a proof stands behind it, and then only
under the assumptions listed with it. Every number in a `because` is recomputed by `tests/privacy/test_claims.py`.

`m` and `q` are records of one client, `c1` bounds the gradient of one record, and neighbours differ in one record.
Sizes, step sizes and penalties may be arrays with one row per client.
"""

from collections.abc import Sequence

from sottovoce.privacy.claims.admm_sharing import ADMMSharing, sharing_sensitivity, sharing_sigma, sharing_total
from sottovoce.privacy.claims.dp_admm import (
    DPADMM,
    DPSGD,
    DVP,
    PVP,
    dp_admm_sigma,
    dp_sgd_sigma,
    dvp_epsilon,
    dvp_noise,
    moments_total,
    moments_total_as_printed,
    pvp_sigma,
)
from sottovoce.privacy.claims.fed_plt import FedPLT, fed_plt_epsilon, fed_plt_rdp, fed_plt_tau
from sottovoce.privacy.claims.fedepm import FedEPM, fedepm_practical_scale, fedepm_scale
from sottovoce.privacy.claims.fedspd_dp import (
    FEDSPD_C0,
    FedSPDDP,
    fedspd_data_rate,
    fedspd_epsilon,
    fedspd_sensitivity,
    fedspd_sigma,
    fedspd_total,
)
from sottovoce.privacy.claims.paper import Asked, PaperClaim, dp_admm_exact_mu, gaussian_factor

CLAIMS: dict[str, PaperClaim] = {
    claim.method: claim for claim in (DPADMM(), PVP(), DVP(), DPSGD(), FedSPDDP(), FedPLT(), FedEPM(), ADMMSharing())
}


def describe(
    method: str,
    epsilon: float,
    delta: float,
    rounds: int,
    data_rate: float | None = None,
    client_rate: float = 1.0,
    unmet: Sequence[str] = (),
) -> str:
    """The text a `Published` run prints: the paper's claim in numbers, then what it is worth and what to use instead.

    A method without a recorded claim is not refused: its run is over, and the text must say that nothing protects it.
    `unmet` are assumptions of the claim that this run is known to break: then the verdict is "no guarantee".
    """
    asked = Asked(epsilon, delta, rounds, data_rate, client_rate)
    claim = CLAIMS.get(method)
    if claim is None:
        return f"{method}: no privacy claim is recorded for its published noise. Treat the run as not private."
    return claim.describe(asked, unmet)


def published_table() -> list[dict[str, str]]:
    """One row per method, as plain text: for a table on the command line."""
    columns = ("method", "paper", "statement", "observer", "verdict", "because", "instead")
    return [{name: getattr(claim, name) for name in columns} for claim in CLAIMS.values()]


__all__ = [
    "CLAIMS",
    "FEDSPD_C0",
    "Asked",
    "PaperClaim",
    "describe",
    "dp_admm_exact_mu",
    "dp_admm_sigma",
    "dp_sgd_sigma",
    "dvp_epsilon",
    "dvp_noise",
    "fed_plt_epsilon",
    "fed_plt_rdp",
    "fed_plt_tau",
    "fedepm_practical_scale",
    "fedepm_scale",
    "fedspd_data_rate",
    "fedspd_epsilon",
    "fedspd_sensitivity",
    "fedspd_sigma",
    "fedspd_total",
    "gaussian_factor",
    "moments_total",
    "moments_total_as_printed",
    "published_table",
    "pvp_sigma",
    "sharing_sensitivity",
    "sharing_sigma",
    "sharing_total",
]
