"""All charges that a guarantee is about: whose histories they are, and what they come to together."""

from collections import Counter
from dataclasses import dataclass

from sottovoce.core import check
from sottovoce.core.plain import Json
from sottovoce.ledger.histories import MOST_KINDS, History, Spent, added, known_event, read_history, whole
from sottovoce.privacy.events import Event, pack_event


@dataclass(frozen=True)
class Charges:
    """All charges that a guarantee is about.

    Parameters
    ----------
    planned
        What an answer to each kind of question of this run was planned to be; with unequal batches, that of the
        largest share.
    run
        The name of this run in the owners' ledgers; "" in memory.
    rounds
        How many rounds were done.
    histories, who
        The distinct histories, and which one each owner has: one list per repetition, one number per owner.
    labels
        Where columns are split and labels randomised: the history of the labels.
    """

    planned: tuple[Event, ...]
    rounds: int
    histories: tuple[History, ...]
    who: tuple[tuple[int, ...], ...]
    run: str = ""
    labels: History | None = None

    @property
    def owners(self) -> int:
        return len(self.who[0])

    @property
    def repetitions(self) -> int:
        return len(self.who)

    def of(self, owner: int, repetition: int = 0) -> History:
        return self.histories[self.who[repetition][owner]]

    def events(self) -> list[Event]:
        """Every kind of answer in any history, the planned ones first."""
        charged = (event for history in self.histories for event in history.spent() or ())
        return list(dict.fromkeys((*self.planned, *charged)))

    def answers(self) -> int:
        """The most answers that one owner was charged for (in one repetition)."""
        return max((sum((history.spent() or {}).values()) for history in self.histories), default=0)

    def of_all_repetitions(self) -> Spent:
        """The most that any owner was charged in all repetitions together: of each kind of answer by itself."""
        columns: set[tuple[int, ...]] = {tuple(sorted(column)) for column in zip(*self.who, strict=True)}
        most: Counter[Event] = Counter()
        for column in columns:
            most |= Counter(added(self.histories[place].spent() or {} for place in column))
        return most

    def of_all_owners(self) -> list[Spent]:
        """What all owners together were charged in each repetition; each distinct sum once."""
        rows = {tuple(sorted(row)) for row in self.who}
        return [added(self.histories[place].spent() or {} for place in row) for row in sorted(rows)]

    def ends(self) -> list[str]:
        """The last hash of every chain."""
        return [history.end for history in (*self.histories, *([self.labels] if self.labels else []))]

    def to_dict(self) -> Json:
        """Plain values, for JSON."""
        planned = [pack_event(event) for event in self.planned]
        return {
            "run": self.run,
            "rounds": self.rounds,
            **({"event": planned[0]} if len(planned) == 1 else {"events": planned}),
            "histories": [history.to_dict() for history in self.histories],
            "who": [list(owners) for owners in self.who],
            "labels": None if self.labels is None else self.labels.to_dict(),
        }

    @classmethod
    def from_dict(cls, packed: Json) -> "Charges":
        """What `to_dict` gave, from a file that anybody may have written."""
        try:
            histories = tuple(map(read_history, packed["histories"]))
            who = tuple(tuple(map(whole, owners)) for owners in packed["who"])
            labels = None if packed["labels"] is None else read_history(packed["labels"])
            planned = tuple(map(known_event, packed["events"] if "events" in packed else [packed["event"]]))
            charges = cls(planned, whole(packed["rounds"]), histories, who, str(packed["run"]), labels)
            kinds = max((len(history.spent() or ()) for history in histories), default=0)
        except (check.SottovoceError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise check.InvalidInput(f"charges: cannot be read ({type(error).__name__}: {error})") from None
        places = {place for owners in who for place in owners}
        fits = who and who[0] and len({len(owners) for owners in who}) == 1 and places == set(range(len(histories)))
        check.require(bool(fits), "charges", "every owner must have one history, and every history an owner")
        rule = f"at most {MOST_KINDS} kinds of answer may stand in one history"
        check.require(kinds <= MOST_KINDS, "charges", rule, kinds)
        return charges
