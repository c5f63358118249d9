"""
# An audit that catches a wrong mechanism

Somebody hands you a method that "adds Gaussian noise for ε = 1". Its code runs, its curves look fine, and no test of
accuracy will ever tell that its promise is false. An audit can: it runs the true code on two data sets that differ in
one record and asks how well the messages tell them apart.
"""

# %%
# Here is such a method. It has two of the commonest faults. Its noise is made for one round, though there are as many
# as one likes; and one record that is *replaced* moves a sum by twice the clip norm, not once.

from dataclasses import dataclass, replace
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.algorithms.dp_sgd import Client, Down, Up
from sottovoce.auditing.audit import audit, worst_case
from sottovoce.core.contract import Noise, Site

CLAIM, DELTA = 1.0, 1e-5


@dataclass(frozen=True)
class Hurried(sv.DPSGD):
    """Gradient descent with the noise of the textbook, read in a hurry."""

    name: ClassVar[str] = "hurried"
    modes: ClassVar = frozenset({"published"})

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        change = site.f.gradient_bound * site.f.weight  # one record, once
        scale = change * np.sqrt(2 * np.log(1.25 / DELTA)) / CLAIM
        return state, Up(site.release(site.f.grad(down.w), Noise("gaussian", scale), centre=site.zeros))


# %%
# `worst_case` sets the stage: a client with ten records, one of which has a gradient as long as it may be, and in the
# other data set is turned round. That is what differential privacy is about: not the typical record, every one.

wrong = worst_case(Hurried(), sv.Published(CLAIM, DELTA, clip=1.0), rounds=10, clients=1)
wrong = replace(wrong, claim=(CLAIM, DELTA))
finding = audit(wrong, runs=500)
print(finding)
assert finding.refuted

# %%
# The same with the noise that the library makes for the same promise. `Proven` counts the rounds and the factor of two.

right = worst_case(sv.DPSGD(), sv.Proven(CLAIM, DELTA, clip=1.0), rounds=10, clients=1)
print(audit(right, runs=500))

# %%
# One can see it with the naked eye. Both methods train 4000 models on either data set; drawn is the model along the
# record's own direction. Where ε is 1, whatever model comes out may well have come from either hill.


def models(game, side):
    data = (game.neighbours.first, game.neighbours.second)[side]
    result = sv.train(
        game.algorithm, data, game.objective, rounds=10, privacy=game.privacy, seed=side, runs=4000, record_every=10,
        measure_training=False, engine="numpy",
    )  # fmt: skip
    return result.model @ game.neighbours.row


rounds = [1, 3, 10, 30]
found = {
    name: [audit(replace(game, rounds=k), runs=500).worst.lower for k in rounds]
    for name, game in {"hurried": wrong, "proven": right}.items()
}

figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
for place, (title, game) in zip(axes, {"Hurried": wrong, "Proven": right}.items(), strict=False):
    hills = [models(game, side) for side in (0, 1)]
    bins = np.linspace(np.min(hills), np.max(hills), 50).tolist()
    for hill, name in zip(hills, ("with the record", "with it turned round"), strict=True):
        place.hist(hill, bins, alpha=0.55, label=name)
    place.set(title=f"{title}: the model after 10 rounds", xlabel="along the record", ylabel="models")
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
place.set(xlabel="rounds", ylabel="ε that messages give away", title="Found against claimed")
place.legend(loc="upper left")
plt.show()
