"""Bugs of what noise is bound to besides the answer, of declared classes, and of rounds that fail."""

from tests.mutants.mutant import Mutant, near

_BASE, _CLIENT, _RECORD = "privacy/doors/base.py", "privacy/doors/client.py", "privacy/doors/record.py"
_ASKED = "attacks/test_what_is_asked"
_ONE_RUN = "it compares answers of one run, not of two runs that were paid for"

MUTANTS = (
    Mutant(
        "question-not-bound",
        "Noise does not depend on what is asked.",
        _BASE,
        "return (_table(scale), *question.asked)",
        "return (_table(scale),)",
        near(_ASKED, "equal_answers"),
        blind=_ONE_RUN,
    ),
    Mutant(
        "scale-not-bound",
        "Noise of two scales is the same noise, multiplied, for one answer to one question.",
        _BASE,
        "return (_table(scale), *question.asked)",
        "return question.asked[1:]",
        near(_ASKED, "noise_of_another_scale"),
        blind=_ONE_RUN,
    ),
    Mutant(
        "batches-not-bound",
        "The same batches are drawn whatever is asked.",
        _BASE,
        "return self.key.batch(self.occasion(Purpose.BATCH, question), sizes, question.asked)",
        "return self.key.batch(self.occasion(Purpose.BATCH, question), sizes)",
        near(_ASKED, "batches_are_other_ones"),
        blind=_ONE_RUN,
    ),
    Mutant(
        "rounding-forgotten",
        "Local steps may start where rounding is coarser than their noise.",
        _RECORD,
        'check.require(ratio <= most, "Proven",',
        'check.require(True, "Proven",',
        near(_ASKED, "local_steps_far_away"),
        blind="no method of its game starts that far away",
    ),
    Mutant(
        "ledger-errors-believed",
        "An algorithm that raises a ledger's error stops the run, before anything is charged.",
        _CLIENT,
        "return error is self._ledger_error",
        "return isinstance(error, check.BudgetSpent | LedgerError)",
        near(_ASKED, "in_the_name_of_a_ledger"),
        blind="it plays honest methods",
    ),
    Mutant(
        "other-task-resumed",
        "A checkpoint of one task is taken up by another.",
        "experiment/rounds.py",
        'same = str(arrays.get("task", self.digest)) == self.digest',
        "same = True",
        near(_ASKED, "its_own_task_only"),
        blind="none of its runs is cut off",
    ),
    Mutant(
        "classes-found",
        "A node does not mind labels that its owner did not declare.",
        "deploy/own_data.py",
        "unknown = [row for row, text in enumerate(texts, start=1) if text not in self.labels]",
        "unknown = []",
        near("attacks/test_declared_classes", "declares_its_classes"),
        blind="its clients are all on this machine",
    ),
    Mutant(
        "contributors-believed",
        "A server may say that others add noise too, and a node adds less.",
        "privacy/calibration.py",
        'alone = contributors_of(event) == kind.get("contributors", 1)',
        "alone = True",
        near("privacy/test_discrete", "nobody_is_told"),
        blind="its clients are all on this machine",
    ),
)
