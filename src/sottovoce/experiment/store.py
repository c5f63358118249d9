"""Run folders: config, history, model, guarantee, versions; and checkpoints of a run that is not finished.

Whatever happens, a folder is in one of two states. Unfinished: `config.toml` and `checkpoint.npz`, from which the
run goes on. Finished: no `checkpoint.npz`, and all the other files. A new folder is built under another name, made
durable and renamed; a file is replaced the same way; and a checkpoint is removed only after everything else is
there, so a crash at any moment leaves the last good state.

`manifest.json` names the folder's format and the SHA-256 of every file; `charges.json` holds what the owners' ledgers
were charged, and a seal that ties it to this config and this model. `sottovoce verify` checks both. Folders of format 1
have neither: they are read, and cannot be verified.
"""

import errno
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce
from sottovoce.core import check, codec
from sottovoce.core.check import InvalidInput, MissingData, SottovoceError
from sottovoce.core.contract import Algorithm, Hub
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.core.round import Checkpoint, History
from sottovoce.experiment import experiment
from sottovoce.experiment.local import Result
from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.to_tables import Tables, to_toml
from sottovoce.ledger.chain import link
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.memory import fingerprint
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import VerticalFederation

CONFIG, CHECKPOINT, HISTORY, MODEL = "config.toml", "checkpoint.npz", "history.parquet", "model.npz"
GUARANTEE, GUARANTEE_TEXT, SUMMARY, VERSIONS = "guarantee.json", "guarantee.txt", "summary.json", "versions.json"
CHARGES, MANIFEST = "charges.json", "manifest.json"
FORMAT = 2
FIGURE = "convergence.png"
_COUNTERS = ("k", "bytes_up", "bytes_down", "seconds")
_LARGEST = 8 * 2**30  # bytes of arrays that are read from one file
_PATIENCE = 20  # a checkpoint may take this share (1/20) of the time, however large it is
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "dp-accounting", "opendp", "pyarrow", "matplotlib")


class StoreError(SottovoceError):
    """Something could not be written or read; what was there before is as it was."""


# ------------------------------------------------------------------------------------------------------- finished runs


def save(result: Result, path: str | Path, more: Mapping[str, bytes] | None = None) -> Path:
    """Write a run folder, all of it or nothing. A checkpoint folder of this same run is completed in place.

    `more` files go into it under their names, such as a figure.
    """
    path = Path(path)
    contents = _contents(result, more or {})
    if not (path / CHECKPOINT).exists():
        with new_folder(path) as folder:
            for name, content in contents.items():
                _write(folder / name, content)
        return path
    ours, theirs = to_toml(result.config), _text(path / CONFIG)
    check.require(ours == theirs, str(path), "holds an unfinished run with another config. Choose another folder")
    with _disk(path):
        for name, content in contents.items():
            _replace(path / name, content)
        os.unlink(path / CHECKPOINT)  # from here on the run counts as finished
        _sync_folder(path)
    return path


def load_result(path: str | Path) -> Result:
    """Read a finished run back."""
    path = Path(path)
    if not path.is_dir():
        raise MissingData(f"{path}: there is no such run folder")
    if (path / CHECKPOINT).exists():
        raise InvalidInput(f"{path}: this run is not finished. Go on with: sottovoce run --resume {path}")
    parts = load_parts(path)
    config, weights = parts["config"], parts["model"]
    objective = experiment.build_objective(config.get("objective", {}), f"{path / CONFIG}, [objective]")
    widths = config.get("data", {}).get("split")
    if not widths:
        return Result(objective=objective, **parts)
    fits = isinstance(widths, list) and all(isinstance(width, int) and width > 0 for width in widths)
    check.require(fits, str(path / CONFIG), "[data] split must be the numbers of columns of the parties", widths)
    rule = f"must hold {sum(widths)} numbers (or none, if none were released)"
    check.require(weights.shape[-1] in (0, sum(widths)), str(path / MODEL), rule, weights.shape)
    from sottovoce.experiment.columns import VerticalResult

    return VerticalResult(objective=objective, **parts, widths=tuple(widths))


def load_parts(path: Path) -> dict[str, Any]:
    """The fields of a finished run's `Result` but for the objective, which may be code that no file brings along."""
    form = folder_format(path)
    config = experiment.read_tables(path / CONFIG)
    arrays, outcome = read_arrays(path / MODEL), read_json(path / SUMMARY)
    check.require("model" in arrays, str(path / MODEL), "must hold an array 'model'", sorted(arrays))
    try:
        guarantee = Guarantee.from_dict(read_json(path / GUARANTEE))
        rounds, stopped = int(outcome["rounds"]), str(outcome["stopped"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InvalidInput(f"{path}: {GUARANTEE} or {SUMMARY} was altered ({error})") from None
    weights = arrays["model"]
    fits = weights.dtype == np.float64 and weights.ndim in (1, 2)
    check.require(fits, str(path / MODEL), "must hold float64 numbers, (dim,) or (runs, dim)", weights.shape)
    return {
        "model": weights,
        "history": _read_history(path / HISTORY),
        "guarantee": guarantee,
        "rounds": rounds,
        "stopped": stopped,
        "config": config,
        "charges": load_charges(path)[0] if form > 1 else None,
    }


def folder_format(path: Path) -> int:
    """Which format a finished run folder has; one of a later version of this library is refused."""
    if not (path / MANIFEST).exists():
        check.require(not (path / CHARGES).exists(), str(path), f"has {CHARGES} but no {MANIFEST}; it was taken away")
        return 1
    form = read_json(path / MANIFEST).get("format")
    known = isinstance(form, int) and not isinstance(form, bool) and 1 < form <= FORMAT
    check.require(known, str(path), f"must be a run folder of format 1 to {FORMAT}", form, "Use a newer sottovoce")
    assert isinstance(form, int)
    return form


def load_charges(path: Path) -> tuple[Charges | None, dict[str, Any]]:
    """What a finished run's ledgers were charged (None: it had none), and the seal beside it."""
    said = read_json(path / CHARGES)
    fits = said.keys() == {"charges", "seal"} and isinstance(said["seal"], dict)
    check.require(fits, str(path / CHARGES), "must hold charges and their seal", sorted(said))
    charges, where = said["charges"], str(path / CHARGES)
    check.require(charges is None or isinstance(charges, dict), where, "charges must be an object or null")
    return None if charges is None else Charges.from_dict(charges), said["seal"]


def seal_of(config: bytes, model: bytes, charges: Charges | None) -> dict[str, str]:
    """Ties charges to a config and a model: the digests of both files, and a hash over them and all chains' ends."""
    of = {"config": hashlib.sha256(config).hexdigest(), "model": hashlib.sha256(model).hexdigest()}
    ends = () if charges is None else (charges.run, charges.rounds, *charges.ends())
    return of | {"hash": link("", ("seal", *of.values(), *ends))}


def manifest_of(contents: Mapping[str, bytes]) -> dict[str, Any]:
    """The format of a folder, and the SHA-256 of every file in it."""
    return {"format": FORMAT, "files": {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}}


def load_versions(path: str | Path) -> dict[str, str]:
    """What a finished run was made with."""
    return {str(name): str(version) for name, version in read_json(Path(path) / VERSIONS).items()}


def _contents(result: Result, more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every file of a finished run, in memory: what cannot be said is found out before anything is written."""
    contents = {
        CONFIG: to_toml(result.config).encode(),
        HISTORY: _parquet(result.history, private_columns(result)),
        MODEL: _npz({"model": result.model}),
        GUARANTEE: _dumps(result.guarantee.to_dict()),
        GUARANTEE_TEXT: f"{result.guarantee.text}\n".encode(),
        SUMMARY: _dumps(summary(result)),
        VERSIONS: _dumps(versions()),
        **more,
    }
    charged = None if result.charges is None else result.charges.to_dict()
    seal = seal_of(contents[CONFIG], contents[MODEL], result.charges)
    contents[CHARGES] = _dumps({"charges": charged, "seal": seal})
    return contents | {MANIFEST: _dumps(manifest_of(contents))}


def summary(result: Result) -> dict[str, Any]:
    """A finished run in a few plain numbers: means over its runs, with standard deviations if there are several."""
    history = result.history
    runs = 1 + int(max(history.columns.get("run", [0])))
    said: dict[str, Any] = {
        "method": result.config["algorithm"]["name"],
        "rounds": result.rounds,
        "stopped": result.stopped,
        "runs": runs,
        "privacy": result.guarantee.short,
        "epsilon": result.guarantee.epsilon,
        "delta": result.guarantee.delta,
        "unit": result.guarantee.unit,
        "observer": result.guarantee.observer,
    }
    for name in history.columns:
        if name not in ("run", "round", "answered") and not name.startswith("epsilon"):
            last = history[name][-runs:]
            mean = float(last.mean())
            said[name] = int(mean) if name.startswith("bytes") and mean.is_integer() else mean
            with np.errstate(invalid="ignore"):  # a run that went to infinity has no spread
                if runs > 1 and np.ptp(last) > 0:
                    said[f"{name}_std"] = float(last.std(ddof=1))
    return said


def versions() -> dict[str, str]:
    """What ran: enough to set the same thing up again, and nothing about whose machine it was."""
    found = {"python": platform.python_version(), "sottovoce": sottovoce.__version__}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found | {"system": platform.system(), "machine": platform.machine()}


# --------------------------------------------------------------------------------------------------------- checkpoints


class Checkpoints:
    """Keeps the last round of a run, on disk at most every `seconds` and whenever `write` is called.

    Hand it to `train` as `after_round`. A folder appears with the first write: a run that is over before leaves none.
    """

    def __init__(
        self,
        path: str | Path,
        config: Tables,
        federation: Federation | VerticalFederation,
        seconds: float = 2.0,
        last: Checkpoint | None = None,
    ) -> None:
        check.positive("Checkpoints", seconds=seconds)
        self.path, self.last = Path(path), last
        self._config, self._of = config, _identity(config, federation)
        self._seconds, self._next = seconds, time.monotonic() + seconds

    def __call__(self, checkpoint: Checkpoint) -> None:
        self.last = checkpoint
        begun = time.monotonic()
        if begun >= self._next:
            self.write()
            now = time.monotonic()
            self._next = now + max(self._seconds, _PATIENCE * (now - begun))

    def write(self) -> bool:
        """Write the last completed round; False if there is none yet."""
        last = self.last
        if last is None:
            return False
        arrays = {f"server.{name}": array for name, array in codec.to_arrays(last.server).items()}
        arrays |= {f"clients.{name}": array for name, array in last.clients.items()}
        history = last.history.first(last.recorded)
        arrays |= {f"history.{name}": np.asarray(column) for name, column in history.columns.items()}
        arrays |= {name: np.asarray(getattr(last, name)) for name in _COUNTERS}
        content = _npz(arrays | {"of": np.asarray(self._of)})
        if (self.path / CHECKPOINT).exists():
            with _disk(self.path):
                _replace(self.path / CHECKPOINT, content)
            return True
        with new_folder(self.path) as folder:
            _write(folder / CONFIG, to_toml(self._config).encode())
            _write(folder / CHECKPOINT, content)
        return True


def load_checkpoint(
    path: str | Path,
    algorithm: Algorithm[Any, Any, Any, Any],
    federation: Federation | VerticalFederation,
    objective: Objective,
    config: Tables,
) -> Checkpoint:
    """The checkpoint in a run folder, for `train(resume=...)`; one of another config or other rows is refused."""
    path = Path(path)
    must_be_unfinished(path)
    where = str(path / CHECKPOINT)
    arrays = read_arrays(path / CHECKPOINT)
    check.require(
        arrays.get("of", np.asarray("")).tolist() == _identity(config, federation),
        where,
        "belongs to another config or to other rows; put them back as they were, or start again without --resume",
    )
    for name in _COUNTERS:
        fits = name in arrays and arrays[name].shape == () and arrays[name].dtype.kind in "iuf"
        check.require(fits, where, f"must hold a number {name!r}")
    like = algorithm.init_server(_hub(federation, objective, config))
    server = codec.from_arrays(type(like), codec.under("server.", arrays), like=like)
    columns = {name: column.tolist() for name, column in codec.under("history.", arrays).items()}
    history = _history(columns, where)
    counters = {name: arrays[name].item() for name in _COUNTERS}
    check.whole(where, k=counters["k"])
    return Checkpoint(
        server=server, clients=codec.under("clients.", arrays), history=history, recorded=len(history), **counters
    )


def must_be_unfinished(path: Path) -> None:
    """Refuse a folder from which no run can go on."""
    if not path.is_dir():
        raise MissingData(f"{path}: there is no such run folder")
    if not (path / CHECKPOINT).exists():
        check.require(not (path / MODEL).exists(), str(path), "this run is finished, there is nothing to resume")
        raise MissingData(f"{path}: holds no {CHECKPOINT}, so there is nothing to resume")


def _identity(config: Tables, federation: Federation | VerticalFederation) -> str:
    """Changes with anything that would make the rest of a run disagree with its beginning."""
    if isinstance(federation, VerticalFederation):
        rows = fingerprint(*(part for own in federation.data() for part in own))
    else:
        rows = fingerprint(federation.X, federation.y, federation.offsets)
    return hashlib.sha256((to_toml(config) + rows).encode()).hexdigest()


def _hub(federation: Federation | VerticalFederation, objective: Objective, config: Tables) -> Hub:
    """The server's side before the first round: what its state looks like follows from it."""
    runs = config["run"].get("runs") or None
    lead = () if runs is None else (runs,)
    rng = Draw(Streams(config["run"].get("seed", 0), runs), np.array([SERVER], dtype=np.uint64), 0)
    labels = None
    if isinstance(federation, VerticalFederation):
        from sottovoce.experiment import columns as vertical

        dim, labels = federation.samples, vertical.labels_of(federation, objective)
    else:
        dim = federation.X.shape[1] * objective.loss.outputs
    nobody, zeros = np.zeros((*lead, federation.n, 1), dtype=bool), np.zeros((*lead, 1, dim))
    return Hub(federation.n, objective.penalty, rng, 0, nobody, zeros, labels)


# ------------------------------------------------------------------------------------------------------ all or nothing


@contextmanager
def reserved(path: str | Path, numbered: bool = False) -> Iterator[Path]:
    """Hold a folder's name while a run is under way: made now, and gone again if the run leaves nothing in it.

    An existing folder must be empty; with `numbered`, a taken name gets a number instead, so that runs started at
    the same moment do not meet. To find out here that nothing can be written is better than after an hour.
    """
    path = Path(path)
    with _disk(path):
        made = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        stem, number = path.name, 1
        while True:
            try:
                path.mkdir()
                made.insert(0, path)
                break
            except FileExistsError:
                if not numbered:
                    _must_be_free(path)
                    break
                number += 1
                path = path.with_name(f"{stem}-{number}")
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # the first that is not empty ends it
            for folder in made:
                folder.rmdir()
        raise


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `path` when it is complete and never otherwise."""
    path = Path(path)
    with _disk(path):
        _must_be_free(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.part"
        folder.mkdir()
        try:
            yield folder
            for inside, _, _ in os.walk(folder):
                _sync_folder(Path(inside))
            os.rename(folder, path)  # onto an empty folder at most: another run's files cannot be lost
            _sync_folder(path.parent)
        except BaseException:
            _discard(folder)
            raise


def _must_be_free(path: Path) -> None:
    free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    check.require(free, str(path), "exists and is not an empty folder; choose another one")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """A JSON file inside a `new_folder`."""
    _write(path, _dumps(value))


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz file inside a `new_folder`."""
    _write(path, _npz(arrays))


def replace_file(path: Path, content: bytes) -> None:
    """A file in an existing or new folder: all of it, or what was there before."""
    with _disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, content)


def replace_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz file in an existing or new folder: all of it, or what was there before."""
    replace_file(path, _npz(arrays))


def _replace(path: Path, content: bytes) -> None:
    """Write a file next to `path`, then put it in its place."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        _write(part, content)
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException:
        _discard(part)
        raise


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """A rename is durable once its folder is."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _discard(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Say what the operating system refused in one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SottovoceError):
            raise
        advice = {
            errno.ENOSPC: "free some space, or choose another folder",
            errno.EDQUOT: "free some space, or choose another folder",
            errno.ENOTEMPTY: "choose another folder",
            errno.EEXIST: "choose another folder",
        }.get(error.errno or 0, "choose a folder you may write to")
        reason = (error.strerror or str(error)).lower()
        raise StoreError(
            f"{path}: cannot be written ({reason}); nothing was left half written. Try: {advice}"
        ) from None


# -------------------------------------------------------------------------------------------------- what files contain


def _dumps(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def finite(value: Any) -> Any:
    """Infinite and undefined numbers as null: JSON has no word for them."""
    if isinstance(value, Mapping):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise InvalidInput(f"{path}: must be JSON ({error})") from None
    check.require(isinstance(value, dict), str(path), "must hold an object")
    return value


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise MissingData(f"{path}: there is no such file") from None
    except OSError as error:
        raise MissingData(f"{path}: cannot be read ({error.strerror})") from None
    return check.utf8(str(path), content, "text")


def _parquet(history: History, private: set[str]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    table = pa.table({name: pa.array(column) for name, column in history.columns.items()})
    marked = [
        field.with_metadata({"released": "no: read off private rows"}) if field.name in private else field
        for field in table.schema
    ]
    parquet.write_table(table.cast(pa.schema(marked)), sink)
    return sink.getvalue()


def _read_history(path: Path) -> History:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        raise MissingData(f"{path}: there is no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"{path}: must be a Parquet file ({error})") from None
    return _history(table.to_pydict(), str(path))


def _history(columns: dict[str, list[Any]], where: str) -> History:
    lengths = {len(column) for column in columns.values()}
    check.require(len(lengths) <= 1, where, "the columns of a history must be equally long", tuple(sorted(lengths)))
    return History(columns)


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file. Nothing in it is executed, and no array is larger than the file itself."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
            check.require(
                stored and total <= _LARGEST, str(path), f"must hold at most {_LARGEST} bytes, not compressed"
            )
            for member in members:
                with archive.open(member) as file:
                    _check_header(file, member.file_size, f"{path}, {member.filename}")
        with np.load(path, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise MissingData(f"{path}: there is no such file") from None
    except InvalidInput:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass  # what they say may quote the file's content, and would stay in the context of an error raised here
    raise InvalidInput(f"{path}: must be a whole .npz file of plain arrays")


def _check_header(file: Any, size: int, where: str) -> None:
    """An array's header must not promise more than the file holds: memory is reserved by what it says."""
    version = np.lib.format.read_magic(file)
    check.require(version in ((1, 0), (2, 0)), where, "must be an array of format 1.0 or 2.0", version)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    count = 1
    for length in shape:
        count *= length
    check.require(not dtype.hasobject, where, "must be plain numbers or text", str(dtype))
    check.require(file.tell() + count * dtype.itemsize == size, where, f"must fill its {size} bytes exactly", shape)
