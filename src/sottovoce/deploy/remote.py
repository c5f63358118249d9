"""Transport: clients on other machines.

What carries the messages is a `Post` (`flower/app.py`); here is what must hold whatever carries them. An answer counts
if it came in time, is the first, and has the shape and the finite numbers it must have; all else is silence with a
reason.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import codec
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.contract import Method
from sottovoce.core.plain import Columns
from sottovoce.core.round import Exchange, State
from sottovoce.core.shapes import declared
from sottovoce.deploy import wire
from sottovoce.deploy.beside_rounds import Finished, Prox, Slope, SlopeAt, Values
from sottovoce.deploy.deployment import Deployment
from sottovoce.experiment.tables import to_toml
from sottovoce.privacy.events import pack_event
from sottovoce.problems.rows import engine_for

log = logging.getLogger("sottovoce")
Content = TypeVar("Content")
NO_REPLY = wire.Reply(wire.TIMEOUT, "it did not answer in time")


class TooFewAnswers(SottovoceError):
    """A round did not get the answers it needs; the checkpoint of the round before it is kept."""


class Post(Protocol):
    """Carries questions and returns the replies that came before the deadline; missing clients were silent."""

    def ask(self, asks: Mapping[int, wire.Ask], deadline: float) -> Mapping[int, wire.Reply]: ...
    def statuses(self, wait: float) -> Mapping[int, wire.Status]: ...


class Remote:
    """Clients on other machines.

    Parameters
    ----------
    deployment
        What is trained, and with whom.
    name
        Of the experiment: 32 hex digits.
    post
        Carries the messages.
    sizes
        How many records each client has (public).
    engine, rows
        What clients compute with; "auto" is decided here for all of them, by how many rows they have together.
    """

    def __init__(
        self, deployment: Deployment, name: str, post: Post, sizes: np.ndarray, engine: str = "auto", rows: int = 0
    ) -> None:
        self.n, self._deployment, self._name, self._post = len(deployment.clients.names), deployment, name, post
        self.events = deployment.plan(sizes)
        self._blank = deployment.stand_in(self.events)
        self.dim, self._k = self._blank.dim, 0
        self.labels = self._blank.labels  # `train` gives this to the algorithm as `hub.labels`
        if self.labels is not None:
            self.labels = replace(self.labels, prox=self._prox, slope=self._slope)
        self._spent = np.zeros(self.n, dtype=bool)
        self.limits = np.full(self.n, np.inf)  # of clients, as they said it last
        self.heard = np.zeros(self.n, dtype=bool)  # who has answered in any round
        self._run = ""  # what clients agreed on before a round (sums and products), 64 hex digits
        tables = {table: columns for table, columns in deployment.tables.items() if table != "clients"}
        self.engine = engine_for(engine, rows, self.dim)
        tables["run"] = tables["run"] | {"engine": self.engine}
        if deployment.schema is not None:
            tables["schema"] = {"digest": deployment.schema.digest()}
        self._task = to_toml(tables)
        self._events = json.dumps([pack_event(event) for event in self.events]) if self.events else ""

    def start(self, algorithm: Method) -> None:
        """Nothing to do: a client starts by itself when it is first asked."""

    def exchange(self, algorithm: Method, down: State, active: np.ndarray, k: int) -> Exchange | None:
        self._k = k
        asked = np.flatnonzero(active & ~self._spent).tolist()
        questions = {client: codec.rows(down, np.array([client])) for client in asked}
        allowed: Mapping[str, tuple[int, ...]] = declared(algorithm, algorithm.up, self.dim)

        def upload(_: int, packed: wire.Packed) -> State:
            nonlocal allowed
            up = wire.unpack(packed, algorithm.up, allowed)
            allowed = {name: (array.shape[-1],) for name, array in codec.to_arrays(up).items()}  # all like the first
            return up

        answers, silent = self._heard(wire.ROUND, k, questions, upload)
        for client, reply in silent.items():
            log.warning("round %d: %s", k, self._why(client, reply))
        if self._spent.all():
            return None
        answered = np.isin(np.arange(self.n), list(answers))
        needed = min(self._deployment.clients.least, int((active & ~self._spent).sum()))
        if len(answers) < needed:
            why = f"{len(answers)} of {len(asked)} clients answered and at least {needed} must"
            raise self._too_few(k, why, silent)
        self.heard |= answered
        return Exchange(self._together(answers), answered)

    def _heard(
        self, what: str, k: int, questions: Mapping[int, State | bytes], read: Callable[[int, wire.Packed], Content]
    ) -> tuple[dict[int, Content], dict[int, wire.Reply]]:
        """What was answered, by client, as `read` reads it; and of the silent ones a reply that says why.

        A client may send anything, or nothing: an answer that cannot be read is silence too.
        """
        asks = {client: self._ask(client, question, k, what) for client, question in questions.items()}
        replies = self._post.ask(asks, self._deployment.clients.deadline) if asks else {}
        answers: dict[int, Content] = {}
        silent: dict[int, wire.Reply] = {}
        for client in asks:
            reply = replies.get(client, NO_REPLY)
            try:
                if reply.code:
                    silent[client] = reply
                else:
                    answers[client] = read(client, reply.up)
            except InvalidInput as error:
                silent[client] = wire.Reply(wire.BAD_ANSWER, str(error)[:300])
            self._spent[client] |= reply.code == wire.BUDGET
        return answers, silent

    def _together(self, answers: Mapping[int, State]) -> State:
        """One upload with a row for each client; rows of those who did not answer hold nothing."""
        if not answers:
            return None
        uploads, clients = list(answers.values()), np.array(list(answers))
        everyone = np.ones((len(clients), 1), dtype=bool)
        return codec.merge(codec.empty_rows(uploads[0], self.n), codec.stacked(uploads), clients, everyone)

    def measure(self, model: np.ndarray) -> Mapping[str, ArrayLike]:
        """Loss and accuracy on the public test set; nothing of private rows. Parties' models are not known yet."""
        return {} if self._deployment.clients.split else self._blank.measure(model)

    def metrics(self, model: np.ndarray) -> Columns:
        """How good the finished model is on the public test set."""
        return {} if self._blank.test is None else self._blank.test.metrics(model)

    def evaluate(self, model: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Noisy counts of held-out records at a model (1, dim), and who answered; None if nobody did."""
        k, width = self._deployment.task.rounds + 1, self._blank.door.held.width
        heard, silent = self._heard(wire.HISTOGRAM, k, dict.fromkeys(range(self.n), Finished(model)), _values_of(width))
        counts, answered = np.zeros((self.n, width)), np.zeros(self.n, dtype=bool)
        for client, reply in silent.items():
            log.warning("held-out records: %s", self._why(client, reply))
        for client, values in heard.items():
            counts[client], answered[client] = values[0], True
        self.heard |= answered
        return (counts, answered) if answered.any() else None

    def models(self, k: int) -> np.ndarray:
        """The parties' models after round k, end to end; of length 0 where one cannot be had for its budget."""
        if not self._deployment.task.privacy.predicts:
            return np.zeros(0)
        read = _values_of(*self._deployment.clients.split)
        models, silent = self._heard(wire.MODEL, k, dict.fromkeys(range(self.n)), read)
        gone = {i: reply for i, reply in silent.items() if reply.code in (wire.BUDGET, wire.LOST, wire.STATE)}
        if gone:
            log.warning("no model: %s", self._reasons(gone))
            return np.zeros(0)
        if silent:
            why = "every party's model is needed. Run the app again to ask for them"
            raise TooFewAnswers(f"after round {k}: {why}. Silent: {self._reasons(silent)}")
        return np.concatenate([models[client][0] for client in range(self.n)])

    def _prox(self, v: np.ndarray, rho: np.ndarray) -> np.ndarray:
        return self._about_labels(Prox(v, rho), wire.PROX, v.shape[-1])

    def _slope(self, scores: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        asked = Slope(scores) if rows is None else SlopeAt(scores, rows)
        return self._about_labels(asked, wire.SLOPE, scores.shape[-1])

    def _about_labels(self, question: State, what: str, width: int) -> np.ndarray:
        """One more exchange in the round, with the label holder alone. Without its answer there is no round."""
        holder = self._deployment.clients.holding
        heard, silent = self._heard(what, self._k, {holder: question}, _values_of(width))
        if silent:
            raise self._too_few(self._k, "nothing was heard of the labels", silent)
        return heard[holder]

    def _why(self, client: int, reply: wire.Reply) -> str:
        """Who did not answer, and why."""
        return f"{self._deployment.clients.names[client]}: {reply.reason()}"

    def _reasons(self, silent: Mapping[int, wire.Reply]) -> str:
        return "; ".join(self._why(client, reply) for client, reply in silent.items())

    def _too_few(self, k: int, why: str, silent: Mapping[int, wire.Reply]) -> TooFewAnswers:
        """The error that ends a round, and says how to go on."""
        go_on = f"Run the app again to go on from round {k}"
        return TooFewAnswers(f"round {k}: {why}. {go_on}. Silent: {self._reasons(silent)}")

    def saved(self) -> None:
        """The result is on disk: nothing to do."""

    def snapshot(self) -> dict[str, np.ndarray]:
        known = {"spent": self._spent.astype(np.float64), "limits": self.limits.copy(), "heard": self.heard.copy()}
        return known | {"engine": np.asarray(self.engine)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._spent = np.asarray(arrays["spent"]) > 0
        self.limits, self.heard = np.array(arrays["limits"]), np.asarray(arrays["heard"]) > 0

    def _ask(self, client: int, down: State | bytes, k: int, what: str) -> wire.Ask:
        """One question; `down`: a broadcast, or the bytes of a step of a protocol."""
        bound = self._deployment.clients.row_bound or 0.0
        packed = wire.of_bytes(down) if isinstance(down, bytes) else {} if down is None else wire.pack(down)
        return wire.Ask(self._name, client, k, self._task, self._events, bound, what, packed, self._run)


def _values_of(*widths: int) -> Callable[[int, wire.Packed], np.ndarray]:
    """Reads `Values` of these widths: one for each client, or one for all."""
    return lambda client, up: wire.unpack(up, Values, {"values": (widths[client % len(widths)],)}).values
