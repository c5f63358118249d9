"""
# Two companies with different columns

A bank knows what people do and earn from capital; a shop knows how they live. Both know many of the same people. The
bank wants to know who earns more than 50 000 dollars a year. Neither shows its columns to the other: they multiply
*masked* columns, and what is opened are sums over all people, with noise.
"""

# %%
# The columns of Adult (Becker and Kohavi 1996, doi:10.24432/C5XW20, CC BY 4.0) are split between the two. A schema says
# what everybody knows of the columns, and who has which. Each company encodes its own part of a row and scales it,
# without knowing anything of the other's part.

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.problems.data import uci_adult

rows = [row for file in ("adult.data", "adult.test") for row in uci_adult.complete_rows(file)]
people = [dict(zip((*uci_adult.COLUMNS, "income"), row, strict=True)) for row in rows]
order = np.random.default_rng(0).permutation(len(people))
train, test = [people[i] for i in order[:40_000]], [people[i] for i in order[40_000:]]

adult = sv.Schema.bundled("adult")
shop = ["marital-status", "relationship", "race", "sex", "native-country"]
schema = sv.Schema(
    adult.columns,
    label=adult.label,
    drop=adult.drop,
    missing_values=adult.missing_values,
    parties={"bank": [name for name in adult.columns if name not in shop], "shop": shop},
)
truth = schema.code_labels([person["income"] for person in test])

# %%
# One round. ε and δ are all that has to be said; the unit is one person, all columns at both companies *and the label*.
# The guarantee says who deals the masks, who may collude with whom, and what is not covered.

model = sv.VerticalClassifier(prepare=schema, epsilon=1.0, delta=1e-5, random_state=0).fit(train)
print(f"accuracy: {np.mean((model.predict(test) == '>50K') == truth):.1%}")
print(model.guarantee_)

# %%
# Once the noisy sums are open, other models cost nothing: another penalty, or one company's columns alone. And noise in
# a coefficient has a known size.

result = model.result_
for place, name in enumerate(schema.parties):
    print(f"{name} alone, from the same sums: {np.mean((result.alone(place).scores(test) > 0) == truth):.1%}")
wide = np.abs(result.model) > 2 * result.standard_errors
print(f"{wide.sum()} of {wide.size} coefficients are larger than twice their standard error")

# %%
# ADMM sharing, a published method for such data, sends one number *for every person*, so its noise must hide each one
# and not a sum over many. Here it is at the same ε, with a guarantee that is true and covers less: a person's row at
# one company, and no label. Up to ε = 3 it is worse than predicting that nobody earns more; at ε = 10 it comes near the
# bank alone. These are means of four runs, with constants that were tuned at ε = 8 on another encoding of the same
# people; a stronger penalty brings it to the larger class, and no further. Its published proof promises more; it is
# false (see [the papers, checked](../papers.md)).

epsilons = [0.1, 0.3, 1, 3, 10]
parts, labels = schema.encode_parts(train)
parties = sv.VerticalFederation.of_schema(schema, parts, 2.0 * labels - 1.0)
tests = schema.encode_parts(test)[0], 2.0 * truth - 1.0
options = {"seed": 0, "runs": 4, "test": tests}  # four runs with noise of their own


def objective(lam):
    return sv.Objective(sv.Logistic(), sv.L2(lam), "records", fit_intercept=True, penalise_intercept=True)


def moments(epsilon):
    made = sv.train("auto", parties, objective(1e-4), privacy=sv.ProvenColumns(epsilon, 1e-5), **options)
    alone = [np.mean(made.metrics[f"test_accuracy_{name}_alone"]) for name in parties.names]
    return [np.mean(made.history["test_accuracy"][-4:]), *alone]


def sharing(epsilon):
    privacy = sv.ProvenColumns(epsilon, 1e-5, unit="record", bound=200.0, row_bound=1.0, score_bound=2.0)
    method = sv.ADMMSharing(rho=0.5 / parties.samples)
    made = sv.train(method, parties, objective(1e-3), rounds=2, privacy=privacy, **options)
    return np.mean(made.history["test_accuracy"][-4:])


scores = np.array([moments(epsilon) for epsilon in epsilons])
admm = np.array([sharing(epsilon) for epsilon in epsilons])
for line in zip(epsilons, scores.round(3).tolist(), admm.round(3), strict=True):
    print("ε = {}: both, bank alone, shop alone {}; ADMM sharing {}".format(*line))

# %%
figure, axes = plt.subplots(figsize=(7, 4))
for place, (name, style) in enumerate({"both": "o-", "bank alone": "s--", "shop alone": "^-."}.items()):
    axes.plot(
        epsilons,
        scores[:, place],
        style,
        label=f"{name}, from the same noisy sums" if place else "both, masked moments",
    )
axes.plot(epsilons, admm, "x:", label="both, ADMM sharing (rows at one company, no labels covered)")
axes.axhline(1 - truth.mean(), color="0.35", linestyle=":", linewidth=1, label="nobody earns more")
axes.set_xscale("log")
axes.set_xticks(epsilons, [str(epsilon) for epsilon in epsilons])
axes.minorticks_off()
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set(
    xlabel="ε for a person", ylabel="test accuracy", title="Two companies, 40 000 people, guarantees that are true"
)
axes.legend(fontsize=8)
plt.show()
