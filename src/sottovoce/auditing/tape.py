"""Recording what passes a door, and forcing it on another run.

A `Tape` keeps or forces noisy values. A `Recorder` also keeps the questions that they answer.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import ParamSpec

import numpy as np

from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.contract import ColumnOracle, Noise, Oracle
from sottovoce.core.plain import Json
from sottovoce.experiment.local import LocalClients
from sottovoce.privacy.doors.releases import Releases, Sealed

Asked = ParamSpec("Asked")
Opened = tuple[Oracle | ColumnOracle, Releases]  # what a door hands to an algorithm for one round


@dataclass(frozen=True)
class Made:
    """How a noisy value was made: `exact` plus noise of this kind and scale, (..., rows, coordinates) and (..., 1)."""

    exact: np.ndarray
    scale: np.ndarray
    kind: str


class Tape:
    """Put in a door's `intercept`: keeps the answers that pass, or replaces them by the `forced` ones, in order.

    With a `client` it keeps and replaces only the answers of that client; then everyone must take part in each round.
    """

    def __init__(self, forced: Sequence[np.ndarray] | None = None, client: int | None = None) -> None:
        self.answers: list[np.ndarray] = []
        self.made: list[Made | None] = []  # None where noise was not added at the door
        self._forced = None if forced is None else iter(forced)
        self._rows = slice(None) if client is None else slice(client, client + 1)

    def __call__(self, answer: Floats, exact: Floats | None = None, scale: Numbers = 0.0, kind: str = "") -> Floats:
        if self._forced is not None:
            answer = answer.copy()
            answer[..., self._rows, :] = next(self._forced)
        self.answers.append(answer[..., self._rows, :].copy())
        if exact is None:
            self.made.append(None)
        else:
            scales = np.broadcast_to(scale, (*exact.shape[:-1], 1))
            self.made.append(Made(exact[..., self._rows, :].copy(), scales[..., self._rows, :].copy(), kind))
        return answer

    @property
    def all_made(self) -> list[Made]:
        """How the values were made, of those whose noise was added at the door."""
        return [made for made in self.made if made is not None]


class SumTape(Tape):
    """What an observer of sums sees of each answer: the sum over `honest` clients, `client` among them.

    The others' noise is left out: they may share it with the observer.
    """

    def __init__(self, forced: Sequence[np.ndarray] | None, client: int, honest: int) -> None:
        super().__init__(forced, client)
        self._client, self._honest = client, honest

    def __call__(self, answer: Floats, exact: Floats | None = None, scale: Numbers = 0.0, kind: str = "") -> Floats:
        if exact is None:
            return super().__call__(answer)
        others = [row for row in range(answer.shape[-2]) if row != self._client]
        rows = [self._client, *others[: self._honest - 1]]
        seen = answer[..., rows, :].sum(axis=-2, keepdims=True)
        if self._forced is not None:
            forced = next(self._forced)
            answer = answer.copy()
            answer[..., self._rows, :] += forced - seen
            seen = np.array(forced)
        scales = np.broadcast_to(scale, (*exact.shape[:-1], 1))[..., rows, :]
        deviation = np.sqrt(np.square(scales).sum(axis=-2, keepdims=True))
        self.answers.append(seen)
        self.made.append(Made(exact[..., rows, :].sum(axis=-2, keepdims=True), deviation, kind))
        return answer


# ------------------------------------------------------------------------------------- answers, with their questions

RELEASE, MODEL = "release", "model"
_KINDS = ("gradient", "argmin", "prox-steps", "descent", "moments", "histogram", "fit")  # of questions, as in `Part`
_QUESTIONS = {kind.replace("gradient", "grad").replace("-", "_"): kind for kind in _KINDS}  # by method of an oracle


@dataclass(frozen=True)
class Answer:
    """One answer of all clients in all runs."""

    kind: str  # of question, or `RELEASE` for an upload, or `MODEL` for a party's model for prediction
    k: int
    asked: Json
    given: np.ndarray  # (runs?, clients, coordinates)
    local: np.ndarray
    made: Made | None  # how the door says it was made; None where noise was added elsewhere


class Recorder:
    """Listens at the oracles of `place` from now on. Its tape must be the `intercept` of the door there.

    `forced`: noisy values that replace the clients' own, in order.
    """

    def __init__(self, place: LocalClients, forced: Sequence[np.ndarray] | None = None) -> None:
        self.tape, self.answers = Tape(forced), list[Answer]()
        self._asked: list[tuple[np.ndarray, str, Json]] = []  # zeros that stand for an answer, and what was asked
        door, self._summed = place.door, place.door.summed
        self._zeros_given = self._summed and place.task.privacy.promise == "record"
        plain, models = door.open, getattr(door, "models", None)

        def opened(local: np.ndarray, active: np.ndarray, k: int, public: Sequence[Sealed] = ()) -> Opened:
            oracle, releases = plain(local, active, k, public)
            methods = {name: kind for name, kind in _QUESTIONS.items() if hasattr(oracle, name)}
            heard = {name: self._heard(getattr(oracle, name), kind, k, local) for name, kind in methods.items()}
            values = (getattr(releases, each.name) for each in fields(releases))
            listening = _HeardReleases(*values, hear=lambda release: self._heard(release, RELEASE, k, local))
            return replace(oracle, **heard), listening

        door.open = opened
        if models is not None:
            door.models = lambda kept, local, k: self._heard(models, MODEL, k, local)(kept, local, k)

    def _heard(
        self, answer: Callable[Asked, np.ndarray], kind: str, k: int, local: np.ndarray
    ) -> Callable[Asked, np.ndarray]:
        """`answer`, recorded whenever it is called."""

        def heard(*values: Asked.args, **options: Asked.kwargs) -> np.ndarray:
            question = inspect.signature(answer).bind(*values, **options)
            question.apply_defaults()
            before, asked = len(self.tape.made), question.arguments
            received = answer(*values, **options)
            if self._summed:
                self._hear_term(kind, k, asked, received, before, local)
            elif k > 0 and received is not None:
                made = self.tape.made[-1] if len(self.tape.made) > before else None
                self.answers.append(Answer(kind, k, asked, np.array(received), np.array(local), made))
            return received

        return heard

    def _hear_term(self, kind: str, k: int, asked: Json, received: np.ndarray, before: int, local: np.ndarray) -> None:
        """Where only sums are seen an algorithm gets zeros: the term itself passes when they are released."""
        if kind != RELEASE:
            self._asked += [(received, kind, asked)] if self._zeros_given else []
        elif len(self.tape.made) > before:
            questions = (one[1:] for one in self._asked if one[0] is asked["u"])
            kind, asked = next(questions, (RELEASE, asked))
            self.answers.append(Answer(kind, k, asked, self.tape.answers[-1], np.array(local), self.tape.made[-1]))


@dataclass
class _HeardReleases(Releases):
    """The releases of a round, each of which is recorded."""

    hear: Callable[[Callable[..., np.ndarray]], Callable[..., np.ndarray]] = lambda release: release

    def __call__(self, u: np.ndarray, noise: Noise | None = None, centre: Numbers | None = None) -> np.ndarray:
        return self.hear(super().__call__)(u, noise, centre)
