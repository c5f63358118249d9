"""What the attacks share: clients with rows of the attacker's choice, what a server sees of them, written bytes."""

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.deploy.node import Node
from sottovoce.deploy.wire import Ask
from sottovoce.experiment.tables import to_toml
from sottovoce.ledger.file import FileLedger
from tests.deploy.test_node import asks
from tests.deployments import LIMITS, NAMES, charged

COLUMNS = 4  # of the rows that the questions of `tests.deploy.test_node.asks` are about


def write_node(home: Path, X: np.ndarray, y: np.ndarray, **limits: Any) -> Path:
    """One client with these rows, and its own file."""
    home.mkdir(parents=True)
    np.savez(home / "rows.npz", X=X, y=y)
    data = {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.0}
    relations = ["replace-one", "add-remove", "replace-client"]
    tables = {"node": {"name": NAMES[0]}, "data": data, "limits": LIMITS | {"relations": relations} | limits}
    (home / "node.toml").write_text(to_toml(tables))
    return home / "node.toml"


@dataclass(frozen=True)
class Seen:
    """What a server sees of one question besides the noisy numbers: the reply's code and words, the ledger's count."""

    code: str
    why: str
    shapes: tuple[Any, ...]
    finite: bool
    charged: int
    warned: tuple[str, ...]

    @property
    def answered(self) -> bool:
        return self.code == ""


def seen(file: Path, questions: Iterable[Ask]) -> list[Seen]:
    """Put the questions to this client one after the other, each to a fresh process as it were."""
    found = []
    for ask in questions:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            reply = Node(file).answer(ask)
        shapes = tuple((name, shape) for name, (shape, _) in sorted(reply.up.items()))
        finite = all(np.isfinite(np.frombuffer(data)).all() for _, data in reply.up.values())
        words = tuple(sorted({str(each.message) for each in warned}))
        found.append(Seen(reply.code, reply.why, shapes, finite, charged(file), words))
    return found


def told_apart(folder: Path, questions: list[Any], data: list[Any]) -> list[Any]:
    """What the server sees of clients with these rows; one entry if it sees the same of all of them."""
    views = [seen(write_node(folder / f"{number}", X, y), questions) for number, (X, y) in enumerate(data)]
    return [view for number, view in enumerate(views) if view not in views[:number]]


def first_question(algorithm: Any, privacy: Any, rounds: int = 3, noise: float | None = None) -> Ask:
    """What a server asks in round 1; `noise`: the multiplier that it states, in place of the planned one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about numbers that no honest server would choose
        ask = asks(algorithm, privacy, rounds)[0]
    if noise is None:
        return ask
    return replace(ask, events=json.dumps([json.loads(ask.events)[0] | {"noise_multiplier": noise}]))


def about(ask: Ask, k: int, value: float) -> Ask:
    """The question of round k, with this number in every place of the broadcast."""
    down = {
        name: (shape, np.full(len(data) // 8, value, dtype="<f8").tobytes()) for name, (shape, data) in ask.down.items()
    }
    return replace(ask, k=k, down=down)


def numbers(reply: Any) -> np.ndarray:
    """All numbers of a reply, end to end."""
    return np.concatenate([np.frombuffer(data) for _, (_, data) in sorted(reply.up.items())])


def spent(folder: Path) -> list[int]:
    """How many answers each ledger file in a folder counts."""
    counts = []
    for path in sorted(folder.glob("*.ledger")):
        with FileLedger.open(path) as ledger:
            counts.append(sum(ledger.spent().values()))
    return counts


def written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """All files below a folder with what is in them."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()


def holds(content: bytes, number: int, size: int) -> bool:
    """Whether a whole number stands in these bytes: as text (decimal, hex) or as raw bytes of this length."""
    raw = [number.to_bytes(size, order) for order in ("little", "big")]
    texts = [f"{number}", f"{number:x}", f"{number:X}", f"{number:_}", f"{number:,}"]
    return any(form in content for form in [*raw, *(text.encode() for text in texts)])


def same_direction(a: np.ndarray, b: np.ndarray) -> float:
    """How well one vector tells another, from 0 to 1: the absolute cosine of their angle."""
    a, b = np.ravel(a), np.ravel(b)
    return float(abs(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), np.finfo(float).tiny))


def rows(kinds: Sequence[float], size: int = 12) -> list[tuple[np.ndarray, np.ndarray]]:
    """Data sets that a server would like to tell apart: all rows along one axis, of these lengths, labels mixed."""
    y = np.where(np.arange(size) % 4 == 0, -1.0, 1.0)
    X = np.zeros((size, COLUMNS))
    X[:, 0] = 1.0
    return [(kind * X, y) for kind in kinds]
