"""
# An audit that catches a wrong mechanism

Somebody gives you a method that "adds Gaussian noise for ε = 1". Its code runs, its curves look fine, and no test of
accuracy will ever show that its promise is false. An audit can: it runs the true code on two data sets that differ in
one record and measures how well the messages tell them apart.
"""

# %%
# Here is such a method. It has two of the most common faults. Its noise is enough for one round, but there may be many
# rounds; and one record that is *replaced* moves a sum by twice the clip norm, not once.

from dataclasses import dataclass, replace
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.algorithms.dp_sgd import Down, Up
from sottovoce.auditing.audit import audit, worst_case
from sottovoce.core.contract import Noise, Nothing, Site

CLAIM, DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class Hurried(sv.DPSGD):
    """Gradient descent with the noise of the textbook, applied carelessly."""

    name: ClassVar[str] = "hurried"
    modes: ClassVar = frozenset({"published"})

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        change = site.f.gradient_bound * site.f.weight  # one record, once
        scale = change * np.sqrt(2 * np.log(1.25 / DELTA)) / CLAIM
        return state, Up(site.release(site.f.grad(down.w), Noise("gaussian", scale), centre=site.zeros))


# %%
# `worst_case` makes the two data sets: a client with ten records, one of which has the longest gradient allowed, and in
# the other data set the opposite one. Differential privacy is about every record, not only about typical ones.

wrong = worst_case(Hurried(), sv.Published(CLAIM, DELTA, clip=1.0), rounds=10, clients=1)
wrong = replace(wrong, claim=(CLAIM, DELTA))
finding = audit(wrong, runs=500)
print(finding)
assert finding.refuted

# %%
# The same with the noise that the library adds for this promise. `Proven` takes the rounds and the factor 2 into
# account.

right = worst_case(sv.DPSGD(), sv.Proven(CLAIM, DELTA, clip=1.0), rounds=10, clients=1)
print(audit(right, runs=500))

# %%
# Histograms show it too. Each method trains 4000 models on either data set; drawn is the model's coordinate in the
# direction of the record. Where ε is 1, a model says little about which of the two data sets it was trained on.


def models(game, side):
    data = (game.neighbours.first, game.neighbours.second)[side]
    result = sv.train(
        game.algorithm, data, game.objective, rounds=10, privacy=game.privacy, seed=side, runs=4000, record_every=10,
        measure_training=False, engine="kernel",
    )  # fmt: skip
    return result.model @ game.neighbours.row


rounds = [1, 3, 10, 30]
found = {
    name: [audit(replace(game, rounds=k), runs=500).worst.lower for k in rounds]
    for name, game in {"hurried": wrong, "proven": right}.items()
}

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
for place, (title, game) in zip(axes, {"Hurried": wrong, "Proven": right}.items(), strict=False):
    trained = [models(game, side) for side in (0, 1)]
    bins = np.linspace(np.min(trained), np.max(trained), 50).tolist()
    for values, name in zip(trained, ("with the record", "with the opposite record"), strict=True):
        place.hist(values, bins, alpha=0.55, label=name)
    place.set(title=f"{title}: the model after 10 rounds", xlabel="coordinate along the record", ylabel="models")
    place.set_ylim(top=1.35 * place.get_ylim()[1])
    place.legend(loc="upper center", ncols=2, fontsize=8)
place = axes[2]
for (name, values), style in zip(found.items(), ("o-", "s--"), strict=True):
    place.plot(rounds, values, style, label=f"{name}: found")
place.axhline(CLAIM, color="0.35", linestyle=":", label="claimed by both")
place.set_xscale("log")
place.set_yscale("log")
place.set_xticks(rounds, [str(k) for k in rounds])
place.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
place.minorticks_off()
place.set(xlabel="rounds", ylabel="ε that messages reveal", title="Found against claimed")
place.legend(loc="upper left")
plt.show()
