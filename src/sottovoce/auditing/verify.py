"""Does a run folder hold together? Checked from its files alone, without trusting the run that wrote them.

What can be checked: that no file was changed since the manifest was written; that the charges are whole chains, and
belong to this config and this model; that they cost the epsilon that is printed, by a second accountant
(`auditing/second_accountant.py`); that the noise is what the config asks for; and that statement, text, summary and
model follow from config and charges. What cannot be checked from files rests on somebody's word, and is said to.

There is no signature in a folder. Whoever rewrites all of it, chains and digests too, makes another folder that holds
together: keep the digest that is printed (of the manifest) where they cannot write, and compare.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sottovoce.auditing import verify_charges
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, MissingData, SottovoceError
from sottovoce.experiment import run_file, saved, store, whole_files
from sottovoce.experiment.result import Result
from sottovoce.ledger.charges import Charges, Kept, Stated
from sottovoce.privacy.guarantee import NO_PRIVACY, UNKNOWN, Guarantee, words
from sottovoce.privacy.theorems import CODE

Status = Literal["verified", "does not hold", "rests on somebody's word"]
VERIFIED, BROKEN, WORD = "verified", "does not hold", "rests on somebody's word"
_NEEDED = (
    store.CONFIG, store.HISTORY, store.MODEL, store.GUARANTEE, store.GUARANTEE_TEXT, store.SUMMARY, store.VERSIONS,
    store.CHARGES,
)  # fmt: skip
_UNREADABLE = (SottovoceError, ArithmeticError, ValueError, TypeError, KeyError, IndexError, AttributeError,
               AssertionError, RecursionError, OSError)  # fmt: skip


class Check(NamedTuple):
    """One thing that was looked at."""

    about: str
    status: Status
    words: str


@dataclass(frozen=True)
class Verification:
    """What was found in a run folder.

    Parameters
    ----------
    folder
        Where.
    checks
        Everything that was looked at.
    guaranteed
        Whether the run states any guarantee; if not, only its files were checked.
    digest
        SHA-256 of the manifest, which names all other files: the folder in one number.
    """

    folder: str
    checks: tuple[Check, ...]
    guaranteed: bool
    digest: str

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not hold."""
        return all(one.status != BROKEN for one in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        told = [one._asdict() for one in self.checks]
        numbers = {"holds": self.holds, "guaranteed": self.guaranteed, "digest": self.digest}
        return {"folder": self.folder, **numbers, "checks": told}


@dataclass(frozen=True)
class Folder:
    """A run folder, read."""

    path: Path
    result: Result
    seal: dict[str, Any]


def verify(path: str | Path) -> Verification:
    """Check the run folder at `path`.

    A folder that cannot be verified at all (there is none, it is unfinished, of the first format or of a later one) is
    refused with an error; what is wrong in one that can is in the list of checks.

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
    _must_be_verifiable(path)
    checks = [_checked("files", lambda: _files(path))]
    digest = hashlib.sha256((path / store.MANIFEST).read_bytes()).hexdigest()
    try:
        folder = _read(path)
    except _UNREADABLE as error:
        broken = Check("reading", BROKEN, f"a file cannot be read ({_why(error)})")
        return Verification(str(path), (*checks, broken), True, digest)
    guarantee = folder.result.guarantee
    checks.append(_checked("seal", lambda: _seal(folder)))
    if guarantee.epsilon is None:
        checks.append(_checked("statement", lambda: _no_number(folder)))
    else:
        checks += [_checked(about, look) for about, look in verify_charges.looks(folder.result)]
    checks += [_checked(about, look) for about, look in _together(folder)]
    checks += _words_of_others(folder)
    return Verification(str(path), tuple(checks), guarantee.epsilon is not None, digest)


def _must_be_verifiable(path: Path) -> None:
    if not path.is_dir():
        raise MissingData(f"{path}: there is no such run folder")
    if (path / store.CHECKPOINT).exists():
        raise InvalidInput(f"{path}: this run is not finished. Go on with: sottovoce run --resume {path}")
    if saved.folder_format(path) == 1:
        raise InvalidInput(
            f"{path}: was saved in the first format, without the charges of its ledgers, so there is nothing to "
            "compute epsilon from. Train again to have a run that can be verified"
        )


def _read(path: Path) -> Folder:
    parts = saved.load_parts(path)
    _, seal = saved.load_charges(path)
    return Folder(path, Result(objective=None, **parts), seal)  # type: ignore[arg-type]  (no look at it is needed)


def _checked(about: str, look: Callable[[], str]) -> Check:
    """`look` says in words what it verified, or raises."""
    try:
        return Check(about, VERIFIED, look())
    except _UNREADABLE as error:
        return Check(about, BROKEN, _why(error))


def _why(error: BaseException) -> str:
    return str(error) if isinstance(error, SottovoceError) else f"{type(error).__name__}: {error}"


# -------------------------------------------------------------------------------------------------------------- looks


def _files(path: Path) -> str:
    manifest = whole_files.read_json(path / store.MANIFEST)
    files = manifest.get("files")
    fits = manifest.keys() == {"format", "files"} and isinstance(files, dict) and set(_NEEDED) <= files.keys()
    check.require(fits, store.MANIFEST, f"must hold format, and files with at least {', '.join(_NEEDED)}")
    assert isinstance(files, dict)
    for name, digest in files.items():
        plain = Path(name).name == name and (path / name).is_file()
        check.require(plain, name, "is in the manifest, and there is no such file in the folder")
        found = hashlib.sha256((path / name).read_bytes()).hexdigest()
        check.require(found == digest, name, "was changed: its SHA-256 is not the one in the manifest")
    return f"{len(files)} files are those that the manifest names, to the last byte"


def _seal(folder: Folder) -> str:
    config, model = ((folder.path / name).read_bytes() for name in (store.CONFIG, store.MODEL))
    seal = store.seal_of(config, model, folder.result.charges)
    for name in ("config", "model", "hash"):
        same = folder.seal.get(name) == seal[name]
        check.require(same, store.CHARGES, f"belongs to another {'run' if name == 'hash' else name}: its seal differs")
    check.require(folder.seal.keys() == seal.keys(), store.CHARGES, "has more in its seal than it must")
    return "charges, config and model carry one seal"


def _no_number(folder: Folder) -> str:
    """A run without a guarantee must not look like one that has any."""
    said, mode = folder.result.guarantee, folder.result.config["privacy"]["mode"]
    check.require(said == Guarantee(said.mode, said.text), store.GUARANTEE, "states numbers beside having no epsilon")
    check.require(said.mode == mode, store.GUARANTEE, f"is of another mode than the config, {mode!r}", said.mode)
    if mode != "proven":
        check.require(folder.result.charges is None, store.CHARGES, f"a run of mode {mode!r} has no budget to charge")
    fixed = {"none": NO_PRIVACY, "proven": UNKNOWN}.get(mode, said.text)
    check.require(said.text == fixed, store.GUARANTEE, f"a run of mode {mode!r} says something else")
    return "no guarantee is stated, so there is none to verify"


def _together(folder: Folder) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "text", lambda: _text(folder)
    yield "summary", lambda: _summary(folder)
    yield "model", lambda: _model(folder)


def _text(folder: Folder) -> str:
    said = folder.result.guarantee
    if said.epsilon is not None:
        check.require(said.text == words(said), store.GUARANTEE, "its text does not say what its fields say")
    written = (folder.path / store.GUARANTEE_TEXT).read_text(encoding="utf-8")
    check.require(written == f"{said.text}\n", store.GUARANTEE_TEXT, f"is not the text in {store.GUARANTEE}")
    return "the printed statement says what its fields say"


def _summary(folder: Folder) -> str:
    same = whole_files.read_json(folder.path / store.SUMMARY) == whole_files.finite(store.summary(folder.result))
    check.require(same, store.SUMMARY, "does not follow from the run")
    return "the summary follows from history, statement and config"


def _model(folder: Folder) -> str:
    """The model, the history and the number of rounds are of the size that the config has."""
    result, config = folder.result, folder.result.config
    runs, shape = config["run"].get("runs") or 0, result.model.shape
    check.require(shape[:-1] == ((runs,) if runs else ()), store.MODEL, f"must hold {runs or 1} models", shape)
    width = _width(config)
    if width is not None:
        fits = shape[-1] == width or (shape[-1] == 0 and "split" in config.get("data", {}))
        check.require(fits, store.MODEL, f"must have {width} numbers", shape)
    said, planned = result.guarantee, config["run"]["rounds"]
    check.require(0 <= result.rounds <= planned, store.SUMMARY, f"must be of at most {planned} rounds", result.rounds)
    told = bool(result.stopped) == (result.rounds < planned)
    check.require(told, store.SUMMARY, f"says otherwise about why it ended, after {result.rounds} of {planned} rounds")
    rounds = result.history.columns.get("round", [])
    check.require(not rounds or max(rounds) == result.rounds, store.HISTORY, f"must end with round {result.rounds}")
    if said.epsilon is not None and said.split:
        released = shape[-1] > 0
        check.require(said.predicts == released, store.GUARANTEE, "says otherwise about whether a model was released")
    return f"the model and its {result.rounds} rounds have the size that the config says"


def _width(config: dict[str, Any]) -> int | None:
    """How many numbers a model has; None where the config does not say."""
    data, clients = config.get("data", {}), config.get("clients", {})
    if "split" in data:
        return sum(data["split"])
    columns = clients.get("columns", data.get("columns") if data.get("source") == "arrays" else None)
    if columns is None or config["objective"]["loss"] == "module":
        return None
    return columns * run_file.build_objective(config["objective"], store.CONFIG).loss.outputs


# ---------------------------------------------------------------------------------------------- what is somebody's word


def _words_of_others(folder: Folder) -> list[Check]:
    """What no look at files can decide."""
    said, charges = folder.result.guarantee, folder.result.charges
    extra = sorted({file.name for file in folder.path.iterdir()} - {store.MANIFEST} - _named(folder.path))
    checks = []
    if extra:
        checks.append(Check("other files", WORD, f"not part of the run, and not looked at: {', '.join(extra)}"))
    if said.epsilon is None or charges is None:
        return checks
    checks.append(Check("the run", WORD, "whoever ran it: that this library, as it is, made this model from these "
                        "answers and charged every one of them"))  # fmt: skip
    in_code = "; ".join(one.what for one in said.assumptions if one.answers == CODE)
    if in_code:
        checks.append(Check("the code", WORD, f"this library's code checks these as it runs: {in_code}"))
    checks += [Check("assumption", WORD, f"{one.what} ({one.answers})")
               for one in said.assumptions if one.answers != CODE]  # fmt: skip
    return [*checks, *_of_ledgers(charges)]


def _of_ledgers(charges: Charges) -> Iterator[Check]:
    withheld = sum(history.withheld for history in charges.histories if isinstance(history, Kept))
    if withheld:
        yield Check("old charges", WORD, f"{withheld} charges of the first format are shown without their details, so "
                    "their hashes could not be checked; what they cost is the owners' word")  # fmt: skip
    for owner in range(charges.owners):
        history = charges.of(owner)
        if isinstance(history, Stated):
            yield Check("an owner", WORD, f"owner {owner}: epsilon {history.epsilon:.6g}, {history.word}")
    if isinstance(charges.labels, Stated):
        yield Check("labels", WORD, f"epsilon {charges.labels.epsilon:.6g}: {charges.labels.word}")


def _named(path: Path) -> set[str]:
    files = whole_files.read_json(path / store.MANIFEST).get("files")
    return set(files) if isinstance(files, dict) else set()
