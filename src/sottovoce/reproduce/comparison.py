"""What no paper has: all methods with rows at clients, at the same total (eps, delta) per record that a proof supports.

Adult, 100 clients, iid or skewed by label (Dirichlet 0.1, everyone at least 100 rows), delta = 1e-5, clip 1,
replace-one.

One rule of tuning for all: a length v from {0.25, 1, 4, 16, 64} and 10 or 50 rounds, whichever gives the least test
loss in one run on *synthetic* rows of the same shape (`synthetic`) at the same eps, iid. What v is for a method is
in `MAKE`; all else is its default, with 5 local steps where a method has local steps. No private row is used for
tuning, so the guarantee covers all of it.

With proven noise PVP is ADMM; DVP has no proof; DP-FedAvg protects whole clients, not records.
"""

from collections.abc import Callable, Mapping, Sequence

from sottovoce.reproduce.comparison_runs import MAKE, NOISY_GD, SPLITS, compare, optimal
from sottovoce.reproduce.experiment import Cell, Claim, Experiment, Finding, Panel, Table
from sottovoce.reproduce.verdicts import CLEAR, mean, means

LENGTHS, EPSILONS = (0.25, 1.0, 4.0, 16.0, 64.0), (0.1, 0.3, 1.0, 3.0, 10.0)
NON_PRIVATE = "optimum, no privacy"


def _cells(quick: bool) -> Sequence[Cell]:
    methods, epsilons = (list(MAKE)[:6], (1.0,)) if quick else (list(MAKE), EPSILONS)
    splits = ("iid",) if quick else tuple(SPLITS)
    sizes = {"lengths": LENGTHS, "rounds": (10, 50), "runs": 10, "splits": splits}
    if quick:
        sizes |= {"lengths": LENGTHS[1:4], "rounds": (10,), "runs": 2}
    settings = [{"method": method, "epsilon": epsilon} for method in methods for epsilon in epsilons]
    return [
        *(Cell(one, compare, {**one, **sizes}) for one in settings),
        Cell({"method": NON_PRIVATE, "epsilon": 0.0}, optimal, {"splits": splits}),
    ]


def _beats_noisy_gd(method: str) -> Callable[[Table], Finding]:
    """Whether its accuracy is three standard errors above that of noisy gradient descent in more than half of the
    settings, and below in none.

    A setting where noisy gradient descent does worse than with less budget has no yardstick: the rule chose a length
    for it there that is too long on Adult.
    """

    def measure(table: Table) -> Finding:
        better, worse, of, without, best = list[str](), list[str](), 0, 0, dict[str, float]()
        settings = table.where(method=[method, NOISY_GD]).each("epsilon", "split")
        for (epsilon, split), rows in sorted(settings, key=lambda setting: setting[0]):
            found = means(rows, "test_accuracy", "method")
            if found[NOISY_GD].value < best.setdefault(split, 0.0):
                without += 1
                continue
            best[split] = found[NOISY_GD].value
            apart = found[method].beyond(found[NOISY_GD])
            of, clear = of + 1, better if apart > CLEAR else worse if apart < -CLEAR else []
            clear.append(f"{split}, eps = {epsilon:g}")
        said = ", ".join(
            f"{word} in {len(where)}" + (f" ({'; '.join(where)})" if where else "")
            for word, where in (("better", better), ("worse", worse))
        )
        more = f"; {without} more have no yardstick" if without else ""
        return Finding(f"{said} of {of} settings{more}", 2 * len(better) > of and not worse)

    return measure


def _optimum(split: str) -> Callable[[Table], Mapping[str, float]]:
    def level(table: Table) -> Mapping[str, float]:
        rows = table.where(method=NON_PRIVATE, split=split)
        return {NON_PRIVATE: mean(rows, "test_accuracy").value} if len(rows) else {}

    return level


def numbers(table: Table) -> str:
    """Mean test accuracy of every method, rounds and megabytes at eps = 1."""
    lines = []
    for split in dict.fromkeys(table["split"].tolist()):
        here = table.where(split=split)
        epsilons = sorted(e for e in set(here["epsilon"].tolist()) if e > 0)
        lines += [
            f"Test accuracy in %, {split}, by total eps (delta = 1e-5 per record); rounds and MB sent at eps = "
            f"{epsilons[len(epsilons) // 2]:g}:",
            "",
        ]
        lines += [
            "| method | " + " | ".join(f"{e:g}" for e in epsilons) + " | rounds | MB |",
            "|---" * (len(epsilons) + 3) + "|",
        ]
        for (method,), rows in here.each("method"):
            if method == NON_PRIVATE:
                lines.append(
                    f"| {method} | "
                    + " | ".join([f"{100 * rows['test_accuracy'][0]:.1f}"] * len(epsilons))
                    + " | – | – |"
                )
                continue
            cells = [mean(rows.where(epsilon=e), "test_accuracy") for e in epsilons]
            middle = rows.where(epsilon=epsilons[len(epsilons) // 2])
            lines.append(
                f"| {method} | "
                + " | ".join(f"{100 * c.value:.1f} ± {100 * c.error:.1f}" for c in cells)
                + f" | {middle['rounds'][0]:.0f} | {middle['megabytes'][0]:.1f} |"
            )
        lines.append("")
    return "\n".join(lines)


COMPARISON = Experiment(
    "comparison",
    "Proven comparison",
    "all methods with rows at clients at the same true total (eps, delta) per record",
    _cells,
    [
        *(
            Claim(
                f"{method} is more accurate than noisy gradient descent",
                f"better ({says})",
                _beats_noisy_gd(method),
                why,
            )
            for method, says, why in (
                (
                    "DP-ADMM",
                    "its paper, Figures 3 and 6",
                    "with both tuned by one rule and proven noise it is better only where rows are skewed and "
                    "the budget is small",
                ),
                (
                    "FedSPD-DP",
                    "its paper, Figure 5",
                    "clearly better only where rows are skewed; with iid rows up to eps = 1 never",
                ),
            )
        ),
    ],
    [
        Panel(
            "test_accuracy",
            "epsilon",
            ("method",),
            {"split": split, "method": list(MAKE)},
            split,
            "total ε",
            log="x",
            references=_optimum(split),
        )
        for split in SPLITS
    ],
    "`Proven` mode, 10 runs. Tuned by one rule for all: the best of 5 lengths and 10 or 50 rounds on synthetic rows of "
    "the same shape, at the same eps. Noise is seeded, as in any simulation. With proven noise PVP is ADMM; DVP has no "
    "proof and is left out. With iid rows and eps = 3 or 10 the rule gives noisy gradient descent a length, 64, that "
    "is too long on Adult: it does worse than at eps = 1, and what others win there says nothing of them. Up to eps = "
    "1, with iid rows, nobody is clearly better than it.",
    summary=numbers,
)
EXPERIMENTS = (COMPARISON,)
