"""
# Ten hospitals, and a server that sees only sums

A guarantee names its observer. By default that is a server that sees every message, so each hospital hides its patients
in its own noise. If messages leave under masks that cancel in the sum, the server sees the sum alone, and the noise of
all honest hospitals together hides a patient: each of them adds less. The price is trust: in how many of the others do
not share what they know with the server.

Patients here are made up: ten hospitals of 200 to 1100 patients, eight measurements, one label.
"""

# %%
# Measurements lie in ranges that anybody could state, so no row is longer than 1, whoever the patient is.

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv

rng = np.random.default_rng(0)
sizes = np.arange(200, 1200, 100)
hospital = np.repeat(np.arange(10), sizes)
measured = rng.uniform(-1, 1, size=(sizes.sum() + 3000, 8))
X = np.column_stack([measured, np.ones(len(measured))]) / 3
risk = X @ np.array([6.0, -4.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.5]) * 2
y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-risk)), 1, -1)
train, test = slice(0, sizes.sum()), (X[sizes.sum() :], y[sizes.sum() :])
fed = sv.Federation.from_arrays(X[train], y[train], groups=hospital, row_bound=1.0)
goal = sv.Objective(sv.Logistic(), sv.L2(1e-6), scale="records")

# %%
# The same method by rule, at the same ε for each patient, for three observers. `colluders` left out is a third of all,
# rounded up: four of ten hospitals may share all they know with the server, and the noise of the other six hides a
# patient. `colluders=0` trusts every hospital to keep its own noise to itself.

epsilons = [0.1, 0.2, 0.5, 1.0, 2.0]
observers = {
    "every message": {},
    "sums, 4 of 10 collude": {"observer": "sums"},
    "sums, nobody colludes": {"observer": "sums", "colluders": 0},
}


def accuracies(epsilon, observer):
    privacy = sv.Proven(epsilon=epsilon, delta=1e-5, **observer)
    result = sv.train("noisy-gd", fed, goal, privacy=privacy, seed=0, runs=5, test=test, engine="numpy")
    return result.history["test_accuracy"][-5:], result


found = {name: [accuracies(epsilon, seen)[0] for epsilon in epsilons] for name, seen in observers.items()}
print(accuracies(0.5, observers["sums, 4 of 10 collude"])[1].guarantee)

# %%
# The guarantee above says who is trusted for what. Where sums are seen, half the budget buys what a server that sees
# every message would get: with h honest hospitals the noise of each falls by √h. At large ε there is little to win.

figure, axes = plt.subplots(figsize=(6, 4))
for (name, scores), style in zip(found.items(), ("s--", "o-", "^:"), strict=True):
    axes.plot(epsilons, np.mean(scores, axis=1), style, label=name)
axes.set_xscale("log")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(xlabel="total ε for each patient (δ = 0.00001)", ylabel="test accuracy", title="What the observer sees")
axes.legend(title="the observer sees")
plt.show()
