"""Is a run folder consistent? Checked from its files alone, without trusting the run that wrote them.

What files can show: no file was changed since the manifest was written; the charges are whole chains, and belong to
this config and this model; by a second accountant (`second_accountant.py`) they cost the printed epsilon; the noise is
what the config asks for; statement, text, summary and model follow from config and charges. What files cannot show
depends on somebody's word, and the verdict says so.

A folder has no signature. Whoever rewrites all of it, with chains and digests, makes another consistent folder. So keep
the printed digest (of the manifest) where others cannot write, and compare.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from sottovoce.auditing import verify_charges
from sottovoce.core import check
from sottovoce.core.histogram import Evaluation
from sottovoce.core.plain import Json
from sottovoce.experiment import run_file, saved, store, tables, whole_files
from sottovoce.experiment.evaluation import PrivateEvaluation, deviation_of
from sottovoce.experiment.result import Result
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.histories import Counted, Kept, Stated
from sottovoce.privacy.guarantee import NO_PRIVACY, UNKNOWN, Guarantee, words
from sottovoce.privacy.theorems import CODE
from sottovoce.problems.rows.held_out import longest, number_of_classes

Status = Literal["verified", "does not hold", "rests on somebody's word"]
VERIFIED, BROKEN, WORD = "verified", "does not hold", "rests on somebody's word"
_UNREADABLE = (check.SottovoceError, ArithmeticError, ValueError, TypeError, KeyError, IndexError, AttributeError,
               AssertionError, RecursionError, OSError)  # fmt: skip

_FAR = 8.0  # deviations: noise is as far off once in 10^15 sums


class Check(NamedTuple):
    """One thing that was checked."""

    about: str
    status: Status
    words: str


@dataclass(frozen=True)
class Verdict:
    """What was found in a run folder.

    Parameters
    ----------
    folder
        The folder.
    checks
        Everything that was checked.
    guaranteed
        Whether the run states a guarantee; if not, only its files were checked.
    digest
        SHA-256 of the manifest, which names all other files: the whole folder in one number.
    """

    folder: str
    checks: tuple[Check, ...]
    guaranteed: bool
    digest: str

    @property
    def holds(self) -> bool:
        """Whether every check holds."""
        return all(one.status != BROKEN for one in self.checks)

    def to_dict(self) -> Json:
        """Plain values, for JSON."""
        numbers = {"holds": self.holds, "guaranteed": self.guaranteed, "digest": self.digest}
        return {"folder": self.folder, **numbers, "checks": [one._asdict() for one in self.checks]}


def verify(path: str | Path) -> Verdict:
    """Check the run folder at `path`.

    A folder that cannot be verified at all (it does not exist, is unfinished, or has another format) is refused with an
    error. What is wrong in other folders is in the list of checks.

    Examples
    --------
    >>> import tempfile
    >>> import sottovoce as sv
    >>> from sottovoce.auditing.verify import verify
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0]] * 50, [1, -1] * 50, groups=[0, 0, 1, 1] * 25, row_bound=1.0)
    >>> privacy = sv.Proven(epsilon=1.0, delta=1e-3, clip=1.0)
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> result = sv.train(sv.DPADMM(), fed, goal, rounds=5, privacy=privacy, seed=0, engine="numpy")
    >>> with tempfile.TemporaryDirectory() as home:
    ...     verify(result.save(home + "/run")).holds
    True
    """
    path = Path(path)
    saved.must_be_finished(path)
    files = _checked("files", lambda: _files(path))
    digest = hashlib.sha256((path / store.MANIFEST).read_bytes()).hexdigest()
    try:
        parts = saved.load_parts(path)
        parts.pop("sums", None)
        result = Result(objective=None, **parts)  # type: ignore[arg-type]  (no check needs it)
        _, seal = saved.load_charges(path)
    except _UNREADABLE as error:
        broken = Check("reading", BROKEN, f"a file cannot be read ({_why(error)})")
        return Verdict(str(path), (files, broken), True, digest)
    guaranteed = result.guarantee.epsilon is not None
    looks: list[tuple[str, Callable[[], str]]] = [
        ("seal", lambda: _seal(path, result, seal)),
        *(verify_charges.looks(result) if guaranteed else [("statement", lambda: _no_guarantee(result))]),
        ("text", lambda: _text(path, result.guarantee)),
        ("summary", lambda: _summary(path, result)),
        ("model", lambda: _model(result)),
    ]
    if result.evaluations:
        looks.append(("evaluation", lambda: _evaluation(path, result)))
    checks = (files, *(_checked(*look) for look in looks), *_words_of_others(path, result))
    return Verdict(str(path), checks, guaranteed, digest)


def _checked(about: str, look: Callable[[], str]) -> Check:
    """`look` describes what it verified, or raises."""
    try:
        return Check(about, VERIFIED, look())
    except _UNREADABLE as error:
        return Check(about, BROKEN, _why(error))


def _why(error: BaseException) -> str:
    return str(error) if isinstance(error, check.SottovoceError) else f"{type(error).__name__}: {error}"


# -------------------------------------------------------------------------------------------------------------- looks


def _files(path: Path) -> str:
    manifest = whole_files.read_json(path / store.MANIFEST)
    files: Json = manifest.get("files") or {}
    fits = manifest.keys() == {"format", "files"} and isinstance(files, dict) and set(store.NEEDED) <= files.keys()
    check.require(fits, store.MANIFEST, f"must hold format, and files with at least {', '.join(store.NEEDED)}")
    for name, digest in files.items():
        plain = Path(name).name == name and (path / name).is_file()
        check.require(plain, name, "is in the manifest, and there is no such file in the folder")
        same = hashlib.sha256((path / name).read_bytes()).hexdigest() == digest
        check.require(same, name, "was changed: its SHA-256 is not the one in the manifest")
    return f"{len(files)} files are those that the manifest names, to the last byte"


def _seal(path: Path, result: Result, kept: Mapping[str, str]) -> str:
    sealed = {name: (path / name).read_bytes() for name in store.SEALED if (path / name).exists()}
    seal = store.seal_of(sealed, result.charges)
    for name in seal:
        rule = f"belongs to another {'run' if name == 'hash' else name}: its seal differs"
        check.require(kept.get(name) == seal[name], store.CHARGES, rule)
    check.require(kept.keys() == seal.keys(), store.CHARGES, "has more in its seal than it must")
    return f"charges, {' and '.join(name for name in seal if name != 'hash')} carry one seal"


def _no_guarantee(result: Result) -> str:
    """A run without a guarantee must not look like one that has any."""
    stated, mode = result.guarantee, result.config["privacy"]["mode"]
    plain = stated == Guarantee(stated.mode, stated.text)
    check.require(plain, store.GUARANTEE, "states numbers although it has no epsilon")
    check.require(stated.mode == mode, store.GUARANTEE, f"is of another mode than the config, {mode!r}", stated.mode)
    if mode != "proven":
        check.require(result.charges is None, store.CHARGES, f"a run of mode {mode!r} has no budget to charge")
    text = {"none": NO_PRIVACY, "proven": UNKNOWN}.get(mode, stated.text)
    check.require(stated.text == text, store.GUARANTEE, f"a run of mode {mode!r} says something else")
    return "no guarantee is stated, so there is none to verify"


def _text(path: Path, stated: Guarantee) -> str:
    if stated.epsilon is not None:
        check.require(stated.text == words(stated), store.GUARANTEE, "its text does not say what its fields say")
    written = (path / store.GUARANTEE_TEXT).read_text(encoding="utf-8")
    check.require(written == f"{stated.text}\n", store.GUARANTEE_TEXT, f"is not the text in {store.GUARANTEE}")
    return "the printed statement says what its fields say"


def _summary(path: Path, result: Result) -> str:
    same = whole_files.read_json(path / store.SUMMARY) == whole_files.finite(store.summary(result))
    check.require(same, store.SUMMARY, "does not follow from the run")
    return "the summary follows from history, statement and config"


def _model(result: Result) -> str:
    """The model, the history and the number of rounds have the size that the config says."""
    config, stated, rounds = result.config, result.guarantee, result.rounds
    runs, planned, shape = config["run"].get("runs") or 0, config["run"]["rounds"], result.model.shape
    check.require(shape[:-1] == ((runs,) if runs else ()), store.MODEL, f"must hold {runs or 1} models", shape)
    width, released = _width(config), shape[-1] > 0
    if width is not None:
        fits = shape[-1] == width or (not released and "split" in config.get("data", {}))
        check.require(fits, store.MODEL, f"must have {width} numbers", shape)
    check.require(0 <= rounds <= planned, store.SUMMARY, f"must be of at most {planned} rounds", rounds)
    explained = bool(result.stopped) == (rounds < planned)
    check.require(explained, store.SUMMARY, f"contradicts itself on why it ended, after {rounds} of {planned} rounds")
    recorded = result.history.columns.get("round", [])
    check.require(not recorded or max(recorded) == rounds, store.HISTORY, f"must end with round {rounds}")
    if stated.epsilon is not None and stated.split:
        rule = "contradicts the folder on whether a model was released"
        check.require(stated.predicts == released, store.GUARANTEE, rule)
    return f"the model and its {rounds} rounds have the size that the config says"


def _width(config: Json) -> int | None:
    """The number of coordinates of a model; None where the config does not say."""
    data, ones = config.get("data", {}), int(_adds_intercept(config))
    columns = sum(data["split"]) if "split" in data else verify_charges.columns_of(config)
    if columns is None:
        return None
    return (columns + ones) * run_file.build_objective(config["objective"], store.CONFIG).loss.outputs


# ---------------------------------------------------------------------------------------------------- private estimates


def _evaluation(path: Path, result: Result) -> str:
    """The estimates follow from their counts, and all else in them from what was charged, the config and the model."""
    saved_runs, models = whole_files.read_json(path / store.EVALUATION)["runs"], np.atleast_2d(result.model)
    planned = () if result.charges is None else result.charges.planned
    one_each = len(saved_runs) == len(result.evaluations) == len(models)
    check.require(one_each, store.EVALUATION, f"must hold an estimate for each of {len(models)} runs", len(saved_runs))
    check.require("evaluate" in result.config, store.CONFIG, "asks for no private estimate, and there is one")
    asked = tables.from_table(Evaluation, result.config["evaluate"], f"{store.CONFIG}, [evaluate]")
    for run, made in enumerate(result.evaluations):
        same = saved_runs[run]["estimates"] == whole_files.finite(made.to_dict()["estimates"])
        check.require(same, store.EVALUATION, "has estimates that do not follow from its counts")
        _evaluation_owners(result, run, made)
        deviation = deviation_of(planned, _replaced(result.config)) * float(np.sqrt(made.owners))
        rule = f"the noise that was charged for has deviation {deviation:g}"
        check.require(bool(np.isclose(made.deviation, deviation)), store.EVALUATION, rule, made.deviation)
        _evaluation_records(result.config, asked, made)
        _evaluation_bins(result, asked, models[run], made)
    return "the private estimates and their intervals follow from noisy counts of the owners that were charged for them"


def _evaluation_owners(result: Result, run: int, made: PrivateEvaluation) -> None:
    """Who answered was charged for it. An answer of another machine may be charged and lost on its way."""
    clients = result.config.get("clients")
    if result.charges is None:
        least = most = len(clients["names"]) if clients else result.config["data"]["clients"]
    else:
        last = result.config["run"]["rounds"] + 1
        charged = [_charged(result.charges, place, last) for place in result.charges.who[run]]
        least, most = charged.count(True), len(charged) - charged.count(False)
    least = 1 if clients else least
    rule = f"{most if least == most else f'{least} to {most}'} owners were asked for counts, and charged"
    check.require(least <= made.owners <= most, store.EVALUATION, rule, made.owners)


def _charged(charges: Charges, place: int, last: int) -> bool | None:
    """Whether an owner was charged for its counts, in round `last`; None where what it shows does not say."""
    history = charges.histories[place]
    if isinstance(history, Kept):
        return any((row.kind, row.run, row.round) == ("charge", charges.run, last) for row in history.rows)
    *others, counts = charges.planned
    if isinstance(history, Counted) and not charges.run and counts not in others:
        return counts in history.spent()
    return None


def _evaluation_records(config: Json, asked: Evaluation, made: PrivateEvaluation) -> None:
    """How many records were counted, as far as public sizes and the sum of the counts tell."""
    public = _replaced(config)
    check.require(public == (made.records is not None), store.EVALUATION, "records must be stated where it is public")
    if made.records is None:
        return
    data = config.get("data", {})
    if "smallest_client" in data and "largest_client" in data:
        sizes = np.array([data["smallest_client"], data["largest_client"]])
        least, most = (made.owners * (sizes - asked.training_sizes(sizes))).tolist()
        rule = f"so many owners hold out {least} to {most} records"
        check.require(least <= made.records <= most, store.EVALUATION, rule, made.records)
    for counts in (made.table, made.bins):
        fits = abs(float(counts.sum()) - made.records) <= _FAR * made.deviation * np.sqrt(counts.size) + 1e-6
        check.require(bool(fits), store.EVALUATION, "its counts do not add up to its records", made.records)


def _evaluation_bins(result: Result, asked: Evaluation, model: np.ndarray, made: PrivateEvaluation) -> None:
    """Where bins end follows from the model and the bound on rows.

    The loss of a neural model is in no file, and neither is a bound that the loader of a named data set stated.
    """
    config, data = result.config, result.config.get("clients") or result.config.get("data", {})
    bound = 1.0 if "schema" in config else data.get("row_bound")
    if config["objective"]["loss"] == "module" or (bound is None and data.get("name")):
        return
    loss = run_file.build_objective(config["objective"], store.CONFIG).loss
    added = int(_adds_intercept(config))
    if bound is None and data.get("ranges"):  # every column is within -1 and 1
        bound = float(np.sqrt(model.shape[-1] // loss.outputs - added))
    if bound is not None and added:
        bound = float(np.hypot(bound, 1.0))
    edges = asked.edges(number_of_classes(loss), result.calibration * longest(loss, model, bound))
    same = edges.shape == made.edges.shape and bool(np.allclose(made.edges, edges, rtol=1e-9, atol=0))
    check.require(same, store.EVALUATION, "its bins do not end where model and config say")
    same = made.calibrated == loss.probabilities
    check.require(same, store.EVALUATION, "calibrated does not follow from the loss", made.calibrated)


def _replaced(config: Json) -> bool:
    return config["privacy"].get("relation", "replace-one") == "replace-one"


def _adds_intercept(config: Json) -> bool:
    """Whether training adds a column for the intercept. Rows that a schema encoded, or nodes have, have one already."""
    return "schema" not in config and not config.get("clients") and config["objective"].get("fit_intercept", False)


# ---------------------------------------------------------------------------------------------- what is somebody's word


def _words_of_others(path: Path, result: Result) -> Iterator[Check]:
    """What files cannot show."""
    files = whole_files.read_json(path / store.MANIFEST).get("files")
    listed = {store.MANIFEST, *(files if isinstance(files, dict) else ())}
    others = sorted({file.name for file in path.iterdir()} - listed)
    if others:
        yield Check("other files", WORD, f"not part of the run, and not checked: {', '.join(others)}")
    stated, charges = result.guarantee, result.charges
    if stated.epsilon is None or charges is None:
        return
    yield Check("the run", WORD, "whoever ran it: that this library, unchanged, made this model from these answers and "
                "charged every one of them")  # fmt: skip
    in_code = "; ".join(one.what for one in stated.assumptions if one.answers == CODE)
    if in_code:
        yield Check("the code", WORD, f"this library's code checks these as it runs: {in_code}")
    for one in stated.assumptions:
        if one.answers != CODE:
            yield Check("assumption", WORD, f"{one.what} ({one.answers})")
    for owner in range(charges.owners):
        history = charges.of(owner)
        if isinstance(history, Stated):
            yield Check("an owner", WORD, f"owner {owner}: epsilon {history.epsilon:.6g}, {history.word}")
    if isinstance(charges.labels, Stated):
        yield Check("labels", WORD, f"epsilon {charges.labels.epsilon:.6g}: {charges.labels.word}")
