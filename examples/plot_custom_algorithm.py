"""
# A custom algorithm in 40 lines

What if a client sent one bit per coordinate, the sign of its gradient, and the server took a majority vote? This page
turns that idea into an algorithm that trains, is private, and is audited. [Add an algorithm](../extend.md) says what
every part is for.
"""

# %%
# Nothing below mentions privacy. The algorithm has no data, it has an oracle: `site.f.grad` clips, pays and adds noise
# before it answers. A sign of a noisy answer is as private as the answer, so the promise holds whatever is done here.

from dataclasses import dataclass
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

import sottovoce as sv
from sottovoce.auditing.audit import audit, worst_case
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Hub, Nothing, Site
from sottovoce.report.style import styles


class Model(Arrays):
    w: Array


class Vote(Arrays):
    signs: Array


@dataclass(frozen=True)
class SignVote(Algorithm[Model, Nothing, Model, Vote]):
    """Each coordinate moves by a step that shrinks like 1/√k, in the direction most clients vote for."""

    step: float = 0.3

    name: ClassVar[str] = "sign-vote"
    summary: ClassVar[str] = "majority vote over the signs of gradients"
    modes: ClassVar = frozenset({"none", "proven"})

    def asks(self) -> Asks:
        return Asks.every_round(answers=1)

    def init_server(self, hub: Hub) -> Model:
        return Model(hub.zeros.copy())

    def broadcast(self, server: Model, hub: Hub) -> Model:
        return server

    def client(self, state: Nothing, down: Model, site: Site) -> tuple[Nothing, Vote]:
        return state, Vote(site.release(np.sign(site.f.grad(down.w)), centre=site.zeros))

    def server(self, server: Model, up: Vote, hub: Hub) -> Model:
        step = self.step / np.sqrt(hub.k)
        return Model(hub.penalty.prox(server.w - step * np.sign(hub.mean(up.signs)), step))

    def model(self, server: Model) -> Array:
        return server.w


# %%
# Fifty owners with 200 rows each, of which some are mislabelled. The vote is compared with noisy gradient descent at
# the same total budget, ε = 1 for each record.

rng = np.random.default_rng(0)
X = rng.normal(size=(12_000, 10))
X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
truth = rng.normal(size=10)
y = np.where(rng.random(12_000) < 0.1, -1, 1) * np.where(X @ truth > 0, 1, -1)
fed = sv.Federation.from_arrays(X[2000:], y[2000:], np.arange(10_000) % 50, row_bound=1.0)
goal = sv.Objective(sv.Logistic(), sv.L2(1e-4))
histories = {
    name: sv.train(
        method, fed, goal, rounds=40, privacy=sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), seed=0, runs=20,
        test=(X[:2000], y[:2000]), measure_training=False, engine="numpy",
    ).history
    for name, method in {"sign vote": SignVote(), "noisy gradient descent": sv.DPSGD(step=4.0)}.items()
}  # fmt: skip

# %%
# Is it as private as it claims? The audit attacks this class as strongly as it can: two data sets that differ in one
# record, and every answer of a client. It finds the ε that was promised, and no more.

finding = audit(worst_case(SignVote(), sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0), rounds=40), runs=1000)
print(finding)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
looks = styles(list(histories))
for (name, history), style in zip(histories.items(), looks, strict=True):
    scores = history["test_accuracy"].reshape(-1, 20)
    rounds = np.arange(1, len(scores) + 1)
    left.plot(rounds, scores.mean(axis=1), label=name, **style.line(markers=False))
    low, high = np.quantile(scores, [0.1, 0.9], axis=1)
    left.fill_between(rounds, low, high, color=style.on_white, alpha=0.2, linewidth=0)
left.axhline(0.9, color="0.35", linestyle=":", label="best possible: 10 % are mislabelled")
left.set_ylim(0.45, 0.92)
left.yaxis.set_major_formatter("{x:.0%}")
left.set(xlabel="rounds", ylabel="test accuracy", title="At the same total of ε = 1")
left.legend(loc="lower right")
bits = [10, 10 * 64]
right.barh([1, 0], bits, height=0.5, color=[style.on_white for style in looks])
right.set_yticks([1, 0], list(histories))
right.set_xscale("log")
right.set_xlim(1, 5000)
for place, number in zip((1, 0), bits, strict=True):
    right.annotate(f"{number} bits", (number, place), xytext=(6, 0), textcoords="offset points", va="center")
right.set(xlabel="bits that a client sends in a round", title="Size of a message")
plt.show()
