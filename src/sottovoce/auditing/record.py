"""What was asked, what was answered, and what the answer was made of: heard at the oracle, whatever is behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sottovoce.auditing.tape import Made, Tape
from sottovoce.core.contract import ColumnOracle
from sottovoce.experiment.local import LocalClients

QUESTIONS = {"grad": "gradient", "argmin": "argmin", "prox_steps": "prox-steps", "descent": "descent"}


@dataclass(frozen=True)
class Answer:
    """One answer to all clients in all runs: `given` is (runs?, clients, coordinates)."""

    kind: str  # of question: "gradient", ..., "fit", "model", or "release" for an upload
    k: int
    number: int  # of its kind in its round
    asked: dict[str, Any]  # by the names of `core.algorithm`
    given: np.ndarray
    local: np.ndarray
    made: Made | None  # what the noise was added to, as the door says; None where it was added elsewhere


@dataclass
class Recorder:
    """Listens at a simulator's oracles. `forced`: noisy values that are given in place of its own, in order."""

    forced: Sequence[np.ndarray] | None = None
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tape = Tape(self.forced)

    def listen(self, place: LocalClients) -> None:
        """From now on; the noise of `place` still passes the tape, which must be its door's `intercept`."""
        door: Any = place.door
        plain, models = door.open, getattr(door, "models", None)

        def opened(local: np.ndarray, active: np.ndarray, k: int, public: Sequence[np.ndarray] = ()) -> Any:
            oracle, releases = plain(local, active, k, public)
            if isinstance(oracle, ColumnOracle):
                oracle = replace(oracle, fit=self._heard(oracle.fit, "fit", ("target", "rho", "noise"), k, local))
            else:
                heard = {
                    name: self._heard(getattr(oracle, name), kind, _ARGUMENTS[kind], k, local)
                    for name, kind in QUESTIONS.items()
                }
                oracle = replace(oracle, **heard)
            return oracle, _Releases(releases, self._heard(releases, "release", _ARGUMENTS["release"], k, local))

        door.open = opened
        if models is not None:

            def made(kept: Any, local: np.ndarray, k: int) -> Any:
                return self._heard(models, "model", ("kept", "local", "k"), k, local)(kept, local, k)

            door.models = made

    def _heard(
        self, answer: Callable[..., Any], kind: str, names: Sequence[str], k: int, local: np.ndarray
    ) -> Callable[..., Any]:
        def heard(*values: Any, **named: Any) -> Any:
            before = len(self.tape.made)
            given = answer(*values, **named)
            if k > 0 and given is not None:
                number = sum(one.k == k and one.kind == kind for one in self.answers)
                made = self.tape.made[-1] if len(self.tape.made) > before else None
                asked = dict(zip(names, values, strict=False)) | named
                self.answers.append(Answer(kind, k, number, asked, np.array(given), np.array(local), made))
            return given

        return heard


_ARGUMENTS = {
    "gradient": ("w",),
    "argmin": ("centre", "rho", "linear", "ridge", "start"),
    "prox-steps": ("start", "spec"),
    "descent": ("start", "spec"),
    "release": ("u", "noise", "centre"),
}


class _Releases:
    """A round's releases, heard; all else as it is."""

    def __init__(self, releases: Any, heard: Callable[..., Any]) -> None:
        self._releases, self._heard = releases, heard

    def __call__(self, *values: Any, **named: Any) -> Any:
        return self._heard(*values, **named)

    def __len__(self) -> int:
        return len(self._releases)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._releases, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_releases", "_heard"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._releases, name, value)
