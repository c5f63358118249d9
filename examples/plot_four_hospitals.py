"""
# Four hospitals

Cleveland, Budapest, Zurich with Basel, and Long Beach recorded the same ten things about patients who came with chest
pain, and whether the heart was found to be ill. No hospital may send a record away. What does each gain from training
together, and what does privacy cost?

The data are those of Janosi, Steinbrunn, Pfisterer and Detrano (1989), Heart Disease, UCI Machine Learning Repository,
doi:10.24432/C52P4X, CC BY 4.0. They come with the package.
"""

# %%
# Columns are scaled to [-1, 1] by ranges that anybody could state without seeing a patient. Dividing by the largest
# value in the data would use private rows without paying for it. With a constant column, and all of it divided by √11,
# no row can be longer than 1, whoever the patient is.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from sottovoce.problems import data as datasets

heart = datasets.load("heart", encoding="raw")
ranges = [(0, 100), (0, 1), (1, 4), (0, 250), (0, 650), (0, 1), (0, 2), (0, 250), (0, 1), (-3, 7)]
scaled = sv.PublicScaler(ranges).fit_transform(heart.X)
X, y = np.column_stack([scaled, np.ones(len(scaled))]) / np.sqrt(11), heart.y
hospitals, hospital = np.unique(heart.groups, return_inverse=True)
for number, name in enumerate(hospitals):
    print(f"{name:12} {np.sum(hospital == number):4} patients, {np.mean(y[hospital == number] > 0):4.0%} ill")

# %%
# Three tenths of the patients are set aside to measure on, six times over. Each hospital first learns by itself,
# without any privacy. Switzerland cannot: nearly all of its patients are ill, so it learns to say "ill".


def by_itself(train, test):
    """Accuracy on everybody's test patients of what is learnt from `train`."""
    if len(np.unique(y[train])) < 2:
        return np.mean(y[test] == y[train][0])
    return LogisticRegression(C=1000, fit_intercept=False).fit(X[train], y[train]).score(X[test], y[test])


splits = [np.random.default_rng(seed).random(len(y)) < 0.3 for seed in range(6)]
alone = [[by_itself(~test & (hospital == number), test) for test in splits] for number in range(4)]
pooled = np.array([by_itself(~test, test) for test in splits])

# %%
# Then all four train together with noisy gradient descent, and the budget of each patient's record is ε in all. Ten
# repetitions run at once (`runs=10`). Of three pairs of step and rounds that were tried on splits of these patients
# this one was kept: fine for a picture, but with private rows each try would have cost a budget (use `sottovoce plan`).
#
# `scale` says who counts how much. With "mean" the four hospitals count the same, and so does their noise: that of
# Switzerland's few dozen patients drowns the others. With "sum" every patient counts the same.

epsilons = [0.5, 1, 2, 4, 8]


def together(test, epsilon, scale):
    fed = sv.Federation.from_arrays(X[~test], y[~test], heart.groups[~test], row_bound=1.0)
    share = 1 if scale == "mean" else len(fed.y) / fed.n  # a sum over patients is this much larger than a mean
    goal = sv.Objective(sv.Logistic(), sv.L2(1e-3 * share), scale=scale)
    privacy = sv.Proven(epsilon=epsilon, delta=1e-4, clip=1.0)
    result = sv.train(
        sv.DPSGD(step=4.0 / share), fed, goal, rounds=20, privacy=privacy, seed=0, runs=10, engine="numpy"
    )
    return np.mean(result.predict(X[test]) == y[test], axis=-1), result.guarantee


private = {
    scale: np.array([[together(test, epsilon, scale)[0] for test in splits] for epsilon in epsilons])
    for scale in ("sum", "mean")
}
print(together(splits[0], 1.0, "sum")[1])

# %%
# A hospital's lawyer should read the guarantee above, and first of all what it does not cover.
#
# The small hospitals gain most: at ε = 4 the common model is some ten points better than Long Beach's own. Cleveland
# gains nothing from it at that price, and at ε = 1, with about 520 patients in all, it would lose. How patients are
# weighted matters as much as ε does: at ε = 1 it is worth seven points.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
names = ["Cleveland", "Budapest", "Switzerland", "Long Beach", "all, ε = 4", "all, no privacy"]
models = [*alone, private["sum"][epsilons.index(4)].mean(axis=1), pooled]
for place, scores in enumerate(models):
    colour = "C0" if place < 4 else "C1" if place == 4 else "0.35"
    left.plot(scores, np.full(len(splits), -place), "o", color=colour, alpha=0.35, markeredgewidth=0)
    left.plot(np.mean(scores), -place, "D", color=colour, markersize=8)
left.set_yticks(-np.arange(len(names)), names)
left.xaxis.set_major_formatter("{x:.0%}")
left.set(xlabel="accuracy on the test patients of all hospitals", title="Who learns what")

for scale, colour, style in (("sum", "C1", "o-"), ("mean", "C2", "s--")):
    runs = private[scale].reshape(len(epsilons), -1)
    low, high = np.quantile(runs, [0.1, 0.9], axis=1)
    right.fill_between(epsilons, low, high, color=colour, alpha=0.15, linewidth=0)
    counts = {"sum": "patients count the same", "mean": "hospitals count the same"}[scale]
    right.plot(epsilons, runs.mean(axis=1), style, color=colour, label=counts)
right.axhline(pooled.mean(), color="0.35", linestyle=":", label="all, no privacy")
right.set_xscale("log", base=2)
right.xaxis.set_major_formatter("{x:g}")
right.yaxis.set_major_formatter("{x:.0%}")
right.set(xlabel="total ε for each patient's record (δ = 0.0001)", ylabel="test accuracy", title="What privacy costs")
right.legend(loc="lower right")
plt.show()
