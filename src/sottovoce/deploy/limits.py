"""What a client's owner allows, the [limits] of its own file, and what a server is told that asks for anything else.

Of an error at a client a server is told a code and a sentence that do not depend on data.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar, cast, get_args

import numpy as np

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.experiment.run_file import MODES
from sottovoce.experiment.task import Task
from sottovoce.experiment.whole_files import StoreError
from sottovoce.ledger.budget import Budget, LedgerError
from sottovoce.privacy.doors.party import OutOfRange
from sottovoce.privacy.events import Event, Relation
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.problems.losses import LOSSES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Refused(check.SottovoceError):
    """Why a client does not answer, in a text without data that may be sent."""

    def __init__(self, code: str, why: str) -> None:
        self.code = code
        super().__init__(why)


MOST_NOISE = 2.0**20  # beyond it an answer is nothing but noise
SMALLEST, LARGEST = 1e-12, 1e12  # of every number that a server may choose, zero apart: products of a few are finite
MOST_ROUNDS = 10**6
Table = TypeVar("Table")


@dataclass(frozen=True)
class Limits:
    """What its owner lets a client answer, whatever a server asks for.

    Parameters
    ----------
    epsilon, delta
        The most that all answers about these rows may ever give away, over all experiments.
    algorithms, losses
        Names of `sottovoce list`.
    least_clip, most_clip, least_noise
        The smallest and the largest clip norm (where columns are split: `bound`), and the smallest noise multiplier,
        that are accepted.
    most_rounds
        The most rounds that an experiment may have.
    questions_per_hour, epsilon_per_day
        The pace (`pace.py`): how many new questions are answered in any 60 minutes, and what the answers of any 24
        hours may give away together, at `delta`. Both count what the ledger was charged. 0: no such bound.
    modes
        "proven"; whoever adds "published" or "none" lets data leave with no guarantee.
    relations
        For what neighbours the budget is counted: "replace-one", "add-remove"; where columns are split also
        "replace-column" and "replace-client" (a whole party). A ledger counts for one of them.
    seeded
        Whether noise that the server can predict is accepted: for tests, where nothing has to be protected.
    message_bytes
        The largest broadcast that is read.
    smallest_number, largest_number
        Bounds on the size of every number that the server chooses: hyper-parameters (which may also be 0, or what this
        library takes by default), and the entries of a broadcast.
    label_epsilon, open_labels
        Of a label holder where columns are split: the epsilon with which its labels are randomised, once for life; or
        that they may be used as they are, which shows every one of them to the server and to all parties.
    held_out
        The share of its records that a client holds out, to answer noisy counts of them at the end of a run that asks
        for it ([evaluate], with the same share). It belongs to the owner, so that the same records are held out in all
        of them. 0: no such question is answered.
    scores_per_day, score_trained
        Where columns are split: for how many scores of new samples it may be asked in any 24 hours (`scoring.py`; 0:
        it answers none), and whether samples that it trained on may be among them.
    answer_after
        Seconds after which a reply leaves, counted from when its question arrived; if the work takes longer, at the
        next multiple. So how long the work took does not show (`pace.py`). 0: a reply leaves when it is ready.
    """

    epsilon: float
    delta: float
    algorithms: tuple[str, ...]
    losses: tuple[str, ...]
    least_clip: check.NonNegative = 0.0
    most_clip: check.Positive = LARGEST
    least_noise: check.NonNegative = 0.0
    most_rounds: check.Whole = MOST_ROUNDS
    questions_per_hour: check.WholeOrZero = 0
    epsilon_per_day: check.NonNegative = 0.0
    modes: tuple[str, ...] = ("proven",)
    relations: tuple[str, ...] = ("replace-one",)
    seeded: bool = False
    message_bytes: check.Whole = 2**26
    smallest_number: check.Positive = SMALLEST
    largest_number: check.Positive = LARGEST
    label_epsilon: check.Positive | None = None
    open_labels: bool = False
    held_out: Annotated[float, check.Interval(0, 1, closed=("low",))] = 0.0
    scores_per_day: check.WholeOrZero = 0
    score_trained: bool = False
    answer_after: check.NonNegative = 0.0

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        check.fields(self, "limits")
        rule = f"epsilon_per_day must be at most epsilon, {self.epsilon:g}, which is for life"
        check.require(self.epsilon_per_day <= self.epsilon, "limits", rule, self.epsilon_per_day)
        rule = "questions_per_hour and epsilon_per_day count what is charged, and only the mode 'proven' is"
        hint = 'Leave them out, or set modes = ["proven"]'
        check.require(not self.paced or self.modes == ("proven",), "limits", rule, hint=hint)
        most = self.smallest_number >= 1e-60 and self.largest_number <= 1e60
        check.require(most, "limits", "numbers must stay within 1e-60 and 1e60, so that their products are finite")
        check.all_of("limits", "algorithm", self.algorithms, ALGORITHMS)
        check.all_of("limits", "loss", self.losses, LOSSES)
        check.all_of("limits", "mode", self.modes, MODES["rows"])
        check.all_of("limits", "relation", self.relations, get_args(Relation))

    @property
    def paced(self) -> bool:
        """Whether the owner bounds how fast a server may ask."""
        return bool(self.questions_per_hour or self.epsilon_per_day)

    def check_task(self, task: Task, events: tuple[Event, ...]) -> None:
        """Refuse a task that the owner does not allow, by public numbers alone."""
        privacy = task.privacy
        algorithm, loss = task.algorithm.name, task.objective.loss.name
        self.allow(algorithm in self.algorithms, f"algorithm {algorithm!r} is not among {list(self.algorithms)}")
        self.allow(loss in self.losses, f"loss {loss!r} is not among {list(self.losses)}")
        self.allow(privacy.mode in self.modes, f"privacy mode {privacy.mode!r} is not among {list(self.modes)}")
        self._check_hyper_parameters(task)
        rounds, most = task.rounds, self.most_rounds
        self.allow(rounds <= most, f"{rounds} rounds are asked for, the most are {most}")
        if task.evaluate is not None:
            asked, share = task.evaluate.held_out, self.held_out
            self.allow(share > 0, "it holds out no records: held_out is 0, and [evaluate] is asked for")
            self.allow(asked == share, f"it holds out a share of {share:g} of its records, and {asked:g} is asked for")
        if privacy.budget is None:
            return
        (epsilon, delta), (name, clip) = privacy.budget, privacy.cut
        relation = cast(Proven | ProvenColumns, privacy).counted_relation
        self.allow(privacy.secret_noise or self.seeded, "seeded noise is not accepted, noise must be 'secure'")
        self.allow(relation in self.relations, f"relation {relation!r} is not among {list(self.relations)}")
        self.allow(epsilon <= self.epsilon, f"epsilon {epsilon:g} is above {self.epsilon:g}")
        self.allow(delta == self.delta, f"delta must be {self.delta:g}, at which this client counts")
        self.allow(clip >= self.least_clip, f"{name} {clip:g} is below {self.least_clip:g}")
        self.allow(clip <= self.most_clip, f"{name} {clip:g} is above {self.most_clip:g}")
        for noise in (event.noise_multiplier for event in events):
            self.allow(noise >= self.least_noise, f"noise multiplier {noise:.4g} is below {self.least_noise:g}")
            self.allow(noise <= MOST_NOISE, f"noise multiplier {noise:.4g} is above {MOST_NOISE:g}")

    def _check_hyper_parameters(self, task: Task) -> None:
        """Refuse numbers of the server's with which an answer would overflow."""
        parts = {"algorithm": task.algorithm, "loss": task.objective.loss, "penalty": task.objective.penalty}
        for name, part in parts.items():
            for field, value in _numbers(part):
                fits = value == 0 or self.smallest_number <= abs(value) <= self.largest_number
                self.allow(fits, f"{name}, {field} = {value:g} is not from {self.smallest_number:g} to "
                            f"{self.largest_number:g} in size")  # fmt: skip

    def check_row_bound(self, asked: float | None, promised_bound: float | None) -> None:
        """Refuse rows no longer than `asked` unless the owner promises as much; and a bound that is no usual number."""
        promised = "nothing" if promised_bound is None else f"{promised_bound:g}"
        kept = asked is None or (promised_bound is not None and promised_bound <= asked)
        self.allow(kept, f"rows no longer than {asked or 0:g} are asked, it promises {promised}")
        fits = asked is None or self.smallest_number <= asked <= self.largest_number
        self.allow(fits, f"row_bound {asked or 0:g} is not from {self.smallest_number:g} to {self.largest_number:g}")

    def check_broadcast(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The same for the entries of a broadcast."""
        for name, array in arrays.items():
            fits = bool((np.abs(array) <= self.largest_number).all())  # False for NaN
            self.allow(fits, f"the broadcast's {name} has a number above {self.largest_number:g} in size")

    def check_labels(self, task: Task) -> None:
        """Refuse to hold labels for an experiment that would show more of them than the owner allows."""
        asked = getattr(task.privacy, "label_epsilon", None)
        limit = "is not given" if self.label_epsilon is None else f"is {self.label_epsilon:g}"
        if asked is None:
            self.allow(self.open_labels, f"labels would be shown: open_labels is false, its label_epsilon {limit}")
        else:
            self.allow(asked == self.label_epsilon, f"label_epsilon {asked:g} is asked for, and its own {limit}")

    @classmethod
    def given(cls, table: Table | None, name: str) -> Table:
        """The table of the owner's file that a question needs; refuses the question if there is none."""
        cls.allow(table is not None, f"its file has no table [{name}]")
        return cast(Table, table)

    @staticmethod
    def allow(fits: bool, why: str) -> None:
        """Refuse, as not within this client's limits, unless it `fits`."""
        if not fits:
            raise Refused(wire.LIMITS, f"this client's limits: {why}")


def _numbers(part: "DataclassInstance") -> Iterator[tuple[str, float]]:
    """The numbers in the fields of a dataclass, also those in lists; defaults are left out: no server chose them."""
    for field in fields(part):
        value = getattr(part, field.name)
        if value == field.default:
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, int | float) and not isinstance(each, bool):
                yield field.name, float(each)
            elif is_dataclass(each) and not isinstance(each, type):
                yield from _numbers(each)


# ------------------------------------------------------------------------------------------ what a server is told


def sentence_for(error: Exception) -> tuple[str, str]:
    """A code and a sentence for the server. Unexpected error texts are never forwarded: they may contain data."""
    if isinstance(error, Refused):
        return error.code, str(error)
    if isinstance(error, OutOfRange):  # about the server's own numbers
        return wire.BAD_ASK, str(error)
    if isinstance(error, check.BudgetSpent):
        return wire.BUDGET, "its privacy budget is spent"
    if isinstance(error, LedgerError):
        return wire.LEDGER, "its ledger cannot be read, written or trusted; its owner has to look at it"
    if isinstance(error, StoreError) or (isinstance(error, OSError) and not isinstance(error, check.SottovoceError)):
        return wire.DISK, "its disk is full or cannot be written; nothing was answered"
    return wire.FAILED, "it could not answer; its own log says why"


@contextmanager
def bad_ask(what: str = "", *kinds: type[Exception]) -> Iterator[None]:
    """Tell the server what cannot be read in its question: no data is in that. `kinds`: besides `InvalidInput`."""
    try:
        yield
    except (check.InvalidInput, *kinds) as error:
        raise Refused(wire.BAD_ASK, f"{what}{str(error)[:300]}") from None


@contextmanager
def kept_from_servers() -> Iterator[None]:
    """What is wrong with an owner's own files is for its log: a server is told that it failed, and nothing of them."""
    try:
        yield
    except check.InvalidInput as error:
        raise check.MissingData(str(error)) from None
