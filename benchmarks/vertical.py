"""Columns split between parties: bytes, time against samples and columns, and ADMM sharing beside FDML.

    .venv/bin/python benchmarks/vertical.py                      # bytes and time
    .venv/bin/python benchmarks/vertical.py --data               # and a9a, arcene (SOTTOVOCE_DATA), docs/vertical.png

An epoch is a pass over the samples: one round of ADMM sharing, samples // batch rounds of FDML.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FDML, ADMMSharing
from sottovoce.core.contract import VerticalAlgorithm
from sottovoce.problems import data as datasets
from sottovoce.problems.columns import Party
from sottovoce.problems.penalties import L2
from sottovoce.problems.vertical import cut

PICTURE = Path(__file__).parent.parent / "docs" / "vertical.png"
SHAPES = (
    *((samples, 100) for samples in (2000, 4000, 8000, 16000, 32000, 64000)),
    *((8000, columns) for columns in (50, 200, 400, 800)),
    *((500, columns) for columns in (4000, 8000)),
)
NEAR = 0.001  # of the best test loss: how near counts as there
Curves = dict[str, np.ndarray]


def made(samples: int, split: list[int]) -> sv.VerticalFederation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, sum(split)))
    return sv.VerticalFederation.from_columns(X, np.where(X @ rng.normal(size=sum(split)) > 0, 1.0, -1.0), split)


def costs() -> None:
    goal = sv.Objective(sv.Logistic(), sv.L2(1.0), scale="sum")
    result = sv.train(ADMMSharing(), made(1000, [5, 20, 3]), goal, rounds=10, privacy=sv.NoPrivacy(), seed=0)
    up, down = (result.history[name][-1] / (10 * 3) for name in ("bytes_up", "bytes_down"))
    print(f"1000 samples, 3 parties: {up:.0f} bytes up and {down:.0f} down per round and party")
    print("\na party's answer: its first, with the factorisation, and the quickest of 40 later ones (ms)")
    print(f"{'samples':>9}{'columns':>9}{'first':>10}{'later':>10}{'two products':>14}{'ratio':>8}")
    for samples, columns in SHAPES:
        D = np.random.default_rng(0).normal(size=(samples, columns))
        party, targets = Party(D, L2(1.0)), np.random.default_rng(1).normal(size=(41, samples))
        taken, products = [], []
        for v in targets:
            begun = time.perf_counter()
            party.scores(party.fit(v, 0.5))
            between = time.perf_counter()
            _ = D @ (D.T @ v)
            taken.append(between - begun)
            products.append(time.perf_counter() - between)
        first, later, two = 1e3 * taken[0], 1e3 * min(taken[1:]), 1e3 * min(products[1:])
        print(f"{samples:9}{columns:9}{first:10.2f}{later:10.3f}{two:14.3f}{later / two:8.2f}", flush=True)


def curve(method: VerticalAlgorithm, epochs: int, federation: Any, goal: sv.Objective, test: Any) -> np.ndarray:
    """Test loss after each epoch."""
    every = method.rounds_per_epoch(federation.samples) if isinstance(method, FDML) else 1
    result = sv.train(
        method, federation, goal, rounds=epochs * every, record_every=every, privacy=sv.NoPrivacy(), test=test, seed=0,
        measure_training=False,
    )  # fmt: skip
    return result.history["test_loss"]


def optimum(federation: sv.VerticalFederation, goal: sv.Objective, test: Any) -> float:
    """Test loss of scikit-learn with all of these columns in one place."""
    from sklearn.linear_model import LogisticRegression

    lam: Any = goal.penalty
    fit = LogisticRegression(C=1 / lam.lam, fit_intercept=False, tol=1e-8, max_iter=5000)
    w = fit.fit(federation.pooled().parts[0], federation.y).coef_[0]
    return float(goal.loss.value(np.hstack(test[0]) @ w, test[1]).mean())


def compare(
    name: str, split: list[int], scale: float, epochs: int, batch: int, steps: list[float], lam: float = 1.0
) -> tuple[Curves, Curves]:
    """Curves of test loss, and the levels of the baselines."""
    data = datasets.load(name, **({"encoding": "binary"} if name == "a9a" else {}))
    assert data.test is not None
    federation = sv.VerticalFederation.from_columns(data.X / scale, data.y, split)
    test, goal = (cut(data.test[0] / scale, split), data.test[1]), sv.Objective(sv.Logistic(), sv.L2(lam), scale="sum")
    alone = optimum(federation.alone(0), goal, ([test[0][0]], test[1]))
    levels = {"pooled (scikit-learn)": optimum(federation, goal, test), "first party alone": alone}
    print(
        f"\n{name}, {' + '.join(map(str, split))} columns, lam = {lam:g}, test loss: "
        + ", ".join(f"{k} {v:.4f}" for k, v in levels.items())
    )
    methods: dict[str, VerticalAlgorithm] = {"admm-sharing": ADMMSharing()}
    methods |= {f"fdml, step {step:g}": FDML(step=step, batch=batch) for step in steps}
    curves = {}
    print(f"{'method':20}{'best':>9}{'at epoch':>10}{f'within {NEAR:g}':>14}{'last':>9}")
    for title, method in methods.items():
        losses = curves[title] = curve(method, epochs, federation, goal, test)
        near = 1 + int(np.argmax(losses <= losses.min() + NEAR))
        print(f"{title:20}{losses.min():9.4f}{1 + losses.argmin():10}{near:14}{losses[-1]:9.4f}", flush=True)
    return curves, {k: np.array(v) for k, v in levels.items()}


def draw(panels: dict[str, tuple[Curves, Curves]]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from sottovoce.report.style import styles

    figure = Figure(figsize=(5.2 * len(panels), 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, (curves, levels)) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for (name, losses), look in zip(curves.items(), styles(list(curves)), strict=True):
            axes.plot(range(1, len(losses) + 1), losses, label=name, **look.line(markers=False))
        for shade, (name, level) in zip(("0.2", "0.6"), levels.items(), strict=True):
            axes.axhline(float(level), color=shade, linewidth=1.2, linestyle=":", label=name)
        lowest = min(float(losses.min()) for losses in curves.values())
        axes.set(title=title, xlabel="epochs", ylabel="loss (test rows)", ylim=(lowest - 0.02, lowest + 0.25))
        axes.grid(True, color="0.9", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, format="png", metadata={"Software": None})
    print(f"\ndrawn: {PICTURE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="store_true", help="compare with FDML on a9a and arcene too")
    parser.add_argument("--no-costs", action="store_true", help="leave bytes and time out")
    options = parser.parse_args()
    if not options.no_costs:
        costs()
    if options.data:
        draw(
            {
                "a9a, 2 parties": compare("a9a", [66, 57], 1.0, 50, 256, [3e-5, 1e-5]),
                **{
                    f"arcene, 3 parties, λ = {lam:g}": compare(
                        "arcene", [4000, 4000, 2000], 999.0, 200, 10, [1e-3, 3e-4], lam
                    )
                    for lam in (1.0, 0.1)
                },
            }
        )


if __name__ == "__main__":
    main()
