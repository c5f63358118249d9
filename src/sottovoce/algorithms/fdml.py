"""FDML: stochastic gradients over distributed features, the rival of ADMM sharing.

Hu, Niu, Yang and Zhou, "FDML: A Collaborative Machine Learning Framework for Distributed Features" (2019), for linear
models and in step with each other, as the ADMM sharing paper compares with it.

    symbol   here              meaning
    x_m      Client.x          a party's part of the model
    B        Down.rows         samples of this minibatch, by number
    D_m^B x  Up.r              a party's scores of the minibatch
    l'       Down.slope        derivative of the loss at the summed scores of the minibatch before, `Down.before`

Departures from the paper
-------------------------
* One exchange per minibatch: the slopes of a minibatch travel with the numbers of the next one. The iterates are those
  of synchronous minibatch SGD; the paper lets parties run ahead of each other.
* An epoch is samples // batch rounds, over samples in an order drawn anew; what does not fill a batch is left out.
* The penalty enters by its prox. A start at zero; the ADMM sharing paper starts this rival at random numbers.
* The paper's noise is not offered: it comes with no statement of what it promises.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Array, Asks, Hub, Kept, Mode, Site, VerticalAlgorithm
from sottovoce.core.shapes import widths


@dataclass(frozen=True)
class Server:
    order: Array  # of the samples in this epoch
    rows: Array  # the next minibatch
    before: Array  # the one before it, and its slopes
    slope: Array
    scores: Array  # last known, of every sample


@dataclass(frozen=True)
class Client:
    x: Array


@dataclass(frozen=True)
class Down:
    rows: Array = widths("batch")
    before: Array = widths("batch")
    slope: Array = widths("batch")
    step: Array = widths(1)


@dataclass(frozen=True)
class Up:
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

    step: float = 0.1
    batch: int = 64
    decay: float = 0.0

    name: ClassVar[str] = "fdml"
    summary: ClassVar[str] = "columns split between parties: minibatch gradients of their summed scores"
    paper: ClassVar[str] = "Hu et al. 2019"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none"})
    down: ClassVar[type] = Down
    up: ClassVar[type] = Up

    def __post_init__(self) -> None:
        check.positive("FDML", step=self.step)
        check.whole("FDML", batch=self.batch)
        check.non_negative("FDML", decay=self.decay)

    def asks(self) -> Asks:
        return Asks.every_round(answers=2, kind="scores")

    def rounds_per_epoch(self, samples: int) -> int:
        return max(1, samples // self.batch)

    def init_server(self, hub: Hub) -> Server:
        if hub.labels is None:
            raise InvalidInput("FDML: needs columns split between parties; give train a VerticalFederation")
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
