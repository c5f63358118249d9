"""
# Budgets that run out

Three branches of a bank train a model together every month. Each has set a limit, for all time, on what may be revealed
about its customers' records. A ledger file at every branch keeps count. What happens when the limit is reached?
"""

# %%
# A ledger belongs to the owner of the data and is bound to it by a fingerprint. Each branch makes its own, with its own
# limit for life: ε = 1, 2 and 3.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.ledger.budget import Budget
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint

rng = np.random.default_rng(0)
X = rng.normal(size=(4400, 6))  # made up, and few: with 8000 rows the months hardly differ in accuracy
X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
y = np.where(X @ rng.normal(size=6) + 0.2 * rng.normal(size=4400) > 0, 1, -1)
branch = rng.choice(["Genoa", "Milan", "Turin"], size=4400, p=[0.4, 0.3, 0.3])
train, test = slice(2000, None), slice(0, 2000)
fed = sv.Federation.from_arrays(X[train], y[train], branch[train], row_bound=1.0)

limits = dict(zip(fed.names, (1.0, 2.0, 3.0), strict=True))
folder = Path(tempfile.mkdtemp())
for number, (name, (rows, labels)) in enumerate(zip(fed.names, fed.data(), strict=True)):
    path = folder / f"{number:04d}.ledger"
    FileLedger.create(path, name, fingerprint(rows, labels), Budget(limits[name], delta=1e-5)).close()

# %%
# Every month a run may spend ε = 0.4 of each branch. Every answer is written down before it is given, and a branch
# whose budget is too small for the next answer does not answer any more. The others go on without it.

goal = sv.Objective(sv.Logistic(), sv.L2(1e-3))
spent, scores, stopped = [np.zeros(3)], [], ""
for month in range(60):
    result = sv.train(
        sv.DPSGD(step=4.0), fed, goal, rounds=4, privacy=sv.Proven(epsilon=0.4, delta=1e-5, clip=1.0), seed=month,
        test=(X[test], y[test]), measure_training=False, engine="numpy", ledgers=folder,
    )  # fmt: skip
    if result.rounds < 4:
        stopped = result.stopped
        break
    ledgers = [FileLedger.open(folder / f"{number:04d}.ledger") for number in range(3)]
    spent.append(np.array([ledger.epsilon() for ledger in ledgers]))
    scores.append(result.history["test_accuracy"][-1])
    for ledger in ledgers:
        ledger.close()
print(f"Month {len(scores) + 1} stopped {stopped}.")

# %%
# Two things to remember. Budgets compose better than by adding them up: 5 times 0.4 is 2, but the branch with a limit
# of 2 answered in more than 5 months. And the limit of a branch that no longer answers still holds, for every later run
# and every later program, as long as the file exists. Whoever deletes it breaks the promise.

spent = np.array(spent)
months = np.arange(len(spent))
for name, total in zip(fed.names, spent.T, strict=True):
    print(f"{name}: limit {limits[name]:g}, answered in {np.sum(np.diff(total) > 0)} months, spent {total[-1]:.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
for number, (name, style) in enumerate(zip(fed.names, ("-", "--", "-."), strict=True)):
    left.step(months, spent[:, number], style, where="post", color=f"C{number}", label=name)
    left.axhline(limits[name], color=f"C{number}", linewidth=0.8, linestyle=":")
    left.annotate(
        f"limit of {name}",
        (months[-1], limits[name]),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
left.set(xlabel="months", ylabel="ε spent so far (δ = 1e-5)", title="Ledgers", ylim=(0, 3.4))
left.legend(loc="lower right")
answering = (np.diff(spent, axis=0) > 0).sum(axis=1)
for count, marker, colour in ((3, "o", "C3"), (2, "s", "C4"), (1, "^", "C6")):
    chosen = answering == count
    when, accuracies = months[1:][chosen], np.array(scores)[chosen]
    right.plot(when, accuracies, marker, color=colour, alpha=0.6, label=f"{count} answering")
    right.hlines(accuracies.mean(), when[0], when[-1], color=colour)
right.yaxis.set_major_formatter("{x:.0%}")
right.set(xlabel="months", ylabel="test accuracy of that month's model", title="Accuracy of the models (lines: means)")
right.legend(title="branches", loc="lower left")
plt.show()
