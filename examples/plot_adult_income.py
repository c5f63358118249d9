"""
# Income on Adult

Does a person earn more than 50 000 dollars a year? The census extract of Becker and Kohavi (1996, doi:10.24432/C5XW20,
CC BY 4.0) comes with the package: 45 222 people, 104 columns, rows of length 1. Its rows are dealt to 100 owners, who
train one model and add their own noise before anything leaves them. Two questions: what does a budget buy, and what
does it cost to be many?
"""

# %%
# 5 222 people are set aside as a public test set. Each of the others is in the hands of one owner.

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.problems import data as datasets

adult = datasets.load("adult")
X, y, X_test, y_test = datasets.split(adult.X, adult.y, test=5222, seed=0)
goal = sv.Objective(sv.Logistic(), sv.L2(1e-6))


def accuracy(algorithm, privacy, owners=100, rounds=50):
    """Test accuracy of three models that are trained at once, from other seeds."""
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
# DP-ADMM's guess of the model's length, `c_w`, does not: 100 was tried here too, and did worse at ε = 1.

methods = {"noisy gradient descent": sv.DPSGD(step=7.6), "DP-ADMM": sv.DPADMM(rho=0.1, c_w=1000.0)}
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
bought = {
    name: np.array([accuracy(method, sv.Proven(epsilon=eps, delta=1e-5, clip=1.0)) for eps in epsilons])
    for name, method in methods.items()
}
exact = accuracy(sv.DPSGD(step=7.6), sv.NoPrivacy()).mean()

# %%
# Then the owners: the same 40 000 people in other hands, at ε = 1. Every owner adds noise of its own, because it trusts
# nobody else with an exact sum. Noise on an owner's mean is 1/records large, and averaging over n owners takes away
# only √n of it: all in all √n times the noise of one curator who holds everything.

hands = [1, 10, 100, 1000]
spread = np.array([accuracy(sv.DPSGD(step=7.6), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), n) for n in hands])
for n, scores in zip(hands, spread, strict=True):
    print(f"{n:5} owners of {len(y) // n:6} people: {scores.mean():.1%}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for (name, scores), style in zip(bought.items(), ("o-", "s--"), strict=True):
    (line,) = left.plot(epsilons, scores.mean(axis=1), style, label=name)
    left.fill_between(epsilons, scores.min(axis=1), scores.max(axis=1), color=line.get_color(), alpha=0.2, linewidth=0)
left.set_xscale("log")
left.set_xticks(epsilons, [f"{eps:g}" for eps in epsilons], minor=False)
left.set(xlabel="total ε of each record (δ = 1e-5)", ylabel="test accuracy", title="What a budget buys: 100 owners")
right.plot(hands, spread.mean(axis=1), "o-", color="C0", label="noisy gradient descent")
right.fill_between(hands, spread.min(axis=1), spread.max(axis=1), color="C0", alpha=0.2, linewidth=0)
right.set_xscale("log")
right.set_xticks(hands, [f"{n}" for n in hands])
right.set(xlabel="owners of the same 40 000 people", title="What it costs to be many: ε = 1")
for axes in (left, right):
    axes.axhline(exact, color="0.35", linestyle=":", label="the same steps without noise")
    axes.axhline(np.mean(y_test < 0), color="0.35", linestyle="--", linewidth=1, label="nobody earns more")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.minorticks_off()
left.legend(loc="lower right")
plt.show()
