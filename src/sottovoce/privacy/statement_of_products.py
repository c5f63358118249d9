"""What may be said about a run that asked for products of split columns: who sees what, and who is trusted for it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sottovoce.core.products import dealer_of
from sottovoce.privacy.theorems import grounds_of_products

if TYPE_CHECKING:
    from sottovoce.privacy.guarantee import Guarantee, Statement
    from sottovoce.privacy.modes import ProvenColumns

UNIT = "one record: all columns of one sample at all owners, and its label, replaced by any others"
COORDINATOR = "the coordinator"
NOT_COVERED = (
    "being on the list of samples, and how many there are: neighbours have the same list",
    "the score of a new sample that is asked for: whoever asks sees it, and of two owners the one who asks learns the "
    "other's part of it",
    "how many columns each owner has",
)


def dealers_of(names: Sequence[str]) -> dict[tuple[int, int], str]:
    """Who deals to each pair of owners by default: the coordinator, or from three owners on another owner."""
    count = len(names)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = {pair: dealer_of(pair, count) for pair in pairs}
    return {pair: COORDINATOR if dealer is None else names[dealer] for pair, dealer in chosen.items()}


def observer_of(names: Sequence[str], dealers: Mapping[tuple[int, int], str]) -> str:
    """Who may see everything, and share what with whom."""
    if len(names) == 1:
        return "the server and anyone else who sees every message and the model"
    if COORDINATOR in dealers.values():
        return (
            "the coordinator alone, who deals the masks and opens the sums, or any one owner alone, with all that it "
            "sees; an owner that colludes with the coordinator is not covered"
        )
    by_dealer: dict[str, list[str]] = {}
    for (a, b), dealer in dealers.items():
        by_dealer.setdefault(dealer, []).append(f"{names[a]} and {names[b]}")
    dealing = "; ".join(f"{dealer} deals to {', to '.join(pairs)}" for dealer, pairs in by_dealer.items())
    return (
        "the server and any one owner, who share all that they see; an owner that colludes with the dealer of a pair "
        f"it belongs to is not covered ({dealing})"
    )


def of_products(
    privacy: "ProvenColumns",
    known: "Statement",
    not_covered: tuple[str, ...],
    names: Sequence[str] = (),
    holder: int = 0,
    dealers: Mapping[tuple[int, int], str] | None = None,
) -> "Guarantee":
    """The guarantee. `names`: of the owners; `holder`: the number of the one that has the labels."""
    dealers = dealers_of(names) if dealers is None else dealers
    grounds = grounds_of_products(privacy, known, len(names))
    privacy = privacy if privacy.on_grid else replace(privacy, noise="discrete")  # there is no other on products
    left_out = tuple(text for text in not_covered if not text.startswith(("which samples", "losses and accuracies of")))
    return replace(
        known.stated(privacy, UNIT, grounds, "owners", (*left_out, *NOT_COVERED)),
        text="",
        observer=observer_of(names, dealers),
        label_epsilon=None,
    )
