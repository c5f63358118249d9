"""
# Income on Adult

Does a person earn more than 50 000 dollars a year? The census extract of Becker and Kohavi (1996, doi:10.24432/C5XW20,
CC BY 4.0) comes with the package: 45 222 people, encoded by a public schema as 148 columns, rows of length 1. Its rows
are split between 100 owners, who train one model and add their own noise to everything they send. Two questions: how
accurate is the model for a given budget, and how does accuracy depend on the number of owners?
"""

# %%
# 5 222 people are set aside as a public test set. The row of each of the others belongs to one owner.

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.problems import data as datasets
from sottovoce.report.style import styles

adult = datasets.load("adult")
X, y, X_test, y_test = datasets.split(adult.X, adult.y, test=5222, seed=0)
goal = sv.Objective(sv.Logistic(), sv.L2(1e-6))


def accuracy(algorithm, privacy, owners=100, rounds=50):
    """Test accuracy of three models that are trained at once, with different seeds."""
    owner = np.random.default_rng(0).permutation(np.arange(len(y)) % owners)
    fed = sv.Federation.from_arrays(X, y, owner, row_bound=1.0)
    result = sv.train(
        algorithm,
        fed,
        goal,
        rounds=rounds,
        privacy=privacy,
        seed=0,
        runs=3,
        record_every=rounds,
        measure_training=False,
    )
    return np.mean(result.predict(X_test) == y_test, axis=-1)


# %%
# First the budget. Both methods promise the same (ε, 1e-5) for each record over the whole run; the noise follows from
# it. The step follows from what is public: rows have length 1, so the curvature of the logistic loss is at most 1/4.
# DP-ADMM's guess of the model's length, `c_w`, does not: it was chosen by looking at these people, who are public.

methods = {"noisy gradient descent": sv.DPSGD(step=7.6), "DP-ADMM": sv.DPADMM(rho=0.1, c_w=1000.0)}
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
by_budget = {
    name: np.array([accuracy(method, sv.Proven(epsilon=eps, delta=1e-5, clip=1.0)) for eps in epsilons])
    for name, method in methods.items()
}
exact = accuracy(sv.DPSGD(step=7.6), sv.NoPrivacy()).mean()

# %%
# Then the owners: the same 40 000 people split between 1 to 1000 owners, at ε = 1. Every owner adds its own noise,
# because it trusts nobody else with an exact sum. The noise on an owner's mean is proportional to 1/records, and the
# average over n owners divides it only by √n: in total √n times the noise of one owner of all rows.

owners = [1, 10, 100, 1000]
by_owners = np.array([accuracy(sv.DPSGD(step=7.6), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), n) for n in owners])
for n, scores in zip(owners, by_owners, strict=True):
    print(f"{n:5} owners of {len(y) // n:6} people: {scores.mean():.1%}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for (name, scores), style in zip(by_budget.items(), styles(list(by_budget)), strict=True):
    left.plot(epsilons, scores.mean(axis=1), label=name, **style.line())
    left.fill_between(epsilons, scores.min(axis=1), scores.max(axis=1), color=style.on_white, alpha=0.2, linewidth=0)
left.set_xscale("log")
left.set_xticks(epsilons, [f"{eps:g}" for eps in epsilons], minor=False)
left.set(xlabel="total ε of each record (δ = 1e-5)", ylabel="test accuracy", title="By budget: 100 owners")
(style,) = styles(["noisy gradient descent"])
right.plot(owners, by_owners.mean(axis=1), **style.line())
low, high = by_owners.min(axis=1), by_owners.max(axis=1)
right.fill_between(owners, low, high, color=style.on_white, alpha=0.2, linewidth=0)
right.set_xscale("log")
right.set_xticks(owners, [f"{n}" for n in owners])
right.set(xlabel="owners of the same 40 000 people", title="By number of owners: ε = 1")
for axes in (left, right):
    axes.axhline(exact, color="0.35", linestyle=":", label="the same steps without noise")
    axes.axhline(np.mean(y_test < 0), color="0.35", linestyle="--", linewidth=1, label="nobody earns more")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.minorticks_off()
left.legend(loc="lower right")
plt.show()
