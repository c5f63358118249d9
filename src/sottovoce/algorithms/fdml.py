"""FDML: stochastic gradients over distributed features. The ADMM sharing paper compares with it.

Hu, Niu, Yang and Zhou, "FDML: A Collaborative Machine Learning Framework for Distributed Features" (2019), for linear
models and with parties that wait for each other, as in the ADMM sharing paper.

    symbol   here              meaning
    x_m      Client.x          a party's part of the model
    B        Down.rows         samples of this minibatch, by number
    D_m^B x  Up.r              a party's scores of the minibatch
    l'       Down.slope        derivative of the loss at the summed scores of the minibatch before, `Down.before`

Departures from the paper
-------------------------
* One exchange per minibatch: the slopes of a minibatch are sent together with the numbers of the next one. The
  iterates are those of synchronous minibatch SGD; in the paper parties may run ahead of each other.
* An epoch is samples // batch rounds, over the samples in a new random order. A last part that does not fill a batch is
  left out.
* The penalty is applied by its prox. The start is zero; the ADMM sharing paper starts this method at random numbers.
* The paper's noise is not offered: the paper does not say what it promises.
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.core.check import NonNegative, Positive, Whole
from sottovoce.core.contract import Array, Arrays, Asks, Hub, Kept, Site, VerticalAlgorithm
from sottovoce.core.shapes import widths


class Server(Arrays):
    order: Array  # of the samples in this epoch
    rows: Array  # the next minibatch
    before: Array  # the minibatch before it
    slope: Array  # and its slopes
    scores: Array  # of every sample, as last known


class Client(Arrays):
    x: Array


class Down(Arrays):
    rows: Array = widths("batch")
    before: Array = widths("batch")
    slope: Array = widths("batch")
    step: Array = widths(1)


class Up(Arrays):
    r: Array = widths("batch")


@dataclass(frozen=True)
class FDML(VerticalAlgorithm[Server, Client, Down, Up]):
    """x_m ← prox(x_m − step · gradient over a minibatch).

    Parameters
    ----------
    step
        Learning rate.
    batch
        Samples in a minibatch; at most all of them.
    decay
        The rate of epoch e = 0, 1, ... is step / (1 + decay · e).
    """

    step: Positive = 0.1
    batch: Whole = 64
    decay: NonNegative = 0.0

    name = "fdml"
    summary = "columns split between parties: minibatch gradients of their summed scores"
    paper = "Hu et al. 2019"
    modes = frozenset({"none"})
    not_summed = "columns are split, and sums are proved for rows"

    def asks(self) -> Asks:
        return Asks.every_round(answers=2, kind="scores")

    def rounds_per_epoch(self, samples: int) -> int:
        return max(1, samples // self.batch)

    def init_server(self, hub: Hub) -> Server:
        assert hub.labels is not None
        order = self._shuffled(hub)
        nothing = hub.zeros[..., : min(self.batch, hub.labels.samples)].copy()
        return Server(order, order[..., : nothing.shape[-1]], nothing, nothing, hub.zeros.copy())

    def init_client(self, site: Site) -> Client:
        return Client(np.zeros((*site.zeros.shape[:-1], site.f.widest)))

    def broadcast(self, server: Server, hub: Hub) -> Down:
        epoch = (hub.k - 1) // self.rounds_per_epoch(server.order.shape[-1])
        step = np.full((*server.rows.shape[:-1], 1), self.step / (1 + self.decay * epoch))
        return Down(server.rows, server.before, server.slope, step)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        gradient = site.f.adjoint(down.slope, down.before)
        x = site.penalty.prox(state.x - down.step * gradient, down.step)
        return Client(x), Up(site.release(site.f.predict(x, down.rows)))

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        assert hub.labels is not None
        rows, samples = server.rows, hub.labels.samples
        scores = np.where(hub.answered, up.r, 0.0).sum(axis=-2, keepdims=True)
        slope = hub.labels.slope(scores, rows) * (samples / rows.shape[-1])
        known = server.scores.copy()
        np.put_along_axis(known, rows.astype(np.int64), scores, axis=-1)
        place = hub.k % self.rounds_per_epoch(samples)  # of the next minibatch in its epoch
        order = server.order if place else self._shuffled(hub)
        size = rows.shape[-1]
        return Server(order, order[..., place * size : (place + 1) * size], rows, slope, known)

    def model(self, server: Server) -> Array:
        return server.scores

    def kept(self, state: Client) -> Kept:
        return Kept(x=state.x)

    @staticmethod
    def _shuffled(hub: Hub) -> Array:
        return np.argsort(hub.rng.uniform(hub.zeros.shape[-1]), axis=-1).astype(np.float64)
