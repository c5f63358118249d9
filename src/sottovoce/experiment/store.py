"""Run folders: config, history, model, guarantee, versions; and checkpoints of a run that is not finished.

Whatever happens, a folder is in one of two states. Unfinished: `config.toml` and `checkpoint.npz`, from which the
run goes on. Finished: no `checkpoint.npz`, and all the other files. A new folder is built under another name, made
durable and renamed; a file is replaced the same way; and a checkpoint is removed only after everything else is
there, so a crash at any moment leaves the last good state.

`manifest.json` names the folder's format and the SHA-256 of every file; `charges.json` holds what the owners' ledgers
were charged, and a seal that ties it to this config, this model and its private estimates. `sottovoce verify` checks
both.
"""

import hashlib
import io
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.files import sync_folder
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint, History
from sottovoce.experiment import whole_files
from sottovoce.experiment.predict import coefficients, to_csv
from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.tables import Tables, to_toml
from sottovoce.ledger.chain import link
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.problems.federation import FederatedData

if TYPE_CHECKING:
    import pyarrow as pa

    from sottovoce.experiment.result import Result

CONFIG, CHECKPOINT, HISTORY, MODEL = "config.toml", "checkpoint.npz", "history.parquet", "model.npz"
GUARANTEE, GUARANTEE_TEXT, SUMMARY, VERSIONS = "guarantee.json", "guarantee.txt", "summary.json", "versions.json"
CHARGES, MANIFEST, METRICS, EVALUATION = "charges.json", "manifest.json", "metrics.json", "evaluation.json"
NEEDED = (CONFIG, HISTORY, MODEL, GUARANTEE, GUARANTEE_TEXT, SUMMARY, VERSIONS, CHARGES)  # in every finished run
SEALED = {CONFIG: "config", MODEL: "model", EVALUATION: "evaluation"}
COEFFICIENTS = "coefficients.csv"
FORMAT = 2
FIGURE = "convergence.png"
COUNTERS = ("k", "bytes_up", "bytes_down", "seconds")
_PATIENCE = 20  # a checkpoint may take this share (1/20) of the time, however large it is
_PACKAGES = (
    *("numpy", "scipy", "numba", "scikit-learn", "dp-accounting", "opendp", "cryptography", "pyarrow", "matplotlib"),
)


# ------------------------------------------------------------------------------------------------------- finished runs


def save(result: "Result", path: Path, more: Mapping[str, bytes] | None = None) -> Path:
    """Write a run folder, all of it or nothing. A checkpoint folder of this same run is completed in place.

    `more`: further files, such as a figure.
    """
    contents = _contents(result, more or {})
    if not (path / CHECKPOINT).exists():
        whole_files.write_folder(path, contents)
        return path
    ours, theirs = to_toml(result.config), whole_files.read_text(path / CONFIG)
    check.require(ours == theirs, str(path), "holds an unfinished run with another config. Choose another folder")
    whole_files.replace_files({path / name: content for name, content in contents.items()})
    with whole_files.disk(path):
        os.unlink(path / CHECKPOINT)  # from here on the run counts as finished
        sync_folder(path)
    return path


def seal_of(contents: Mapping[str, bytes], charges: Charges | None) -> dict[str, str]:
    """Ties charges to config, model and private estimates: the digests of these files, and a hash over them and all
    chains' ends."""
    of = {what: hashlib.sha256(contents[name]).hexdigest() for name, what in SEALED.items() if name in contents}
    ends = () if charges is None else (charges.run, charges.rounds, *charges.ends())
    return of | {"hash": link("", ("seal", *of.values(), *ends))}


def _contents(result: "Result", more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every file of a finished run, in memory, so that errors show up before anything is written."""
    arrays = {"model": result.model, "standard_errors": result.standard_errors, "sums": getattr(result, "sums", None)}
    contents = {
        CONFIG: to_toml(result.config).encode(),
        HISTORY: _parquet(result.history, private_columns(result)),
        MODEL: whole_files.npz_bytes({name: array for name, array in arrays.items() if array is not None}),
        GUARANTEE: whole_files.json_bytes(result.guarantee.to_dict()),
        GUARANTEE_TEXT: f"{result.guarantee.text}\n".encode(),
        SUMMARY: whole_files.json_bytes(summary(result)),
        VERSIONS: whole_files.json_bytes(versions()),
        **more,
    }
    if result.schema is not None and result.model.ndim == 1 and result.model.size:
        contents[COEFFICIENTS] = to_csv(coefficients(result)).encode()
    if result.metrics:
        contents[METRICS] = whole_files.json_bytes(dict(result.metrics))
    if result.evaluations:
        contents[EVALUATION] = whole_files.json_bytes({"runs": [each.to_dict() for each in result.evaluations]})
    charged = None if result.charges is None else result.charges.to_dict()
    contents[CHARGES] = whole_files.json_bytes({"charges": charged, "seal": seal_of(contents, result.charges)})
    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(contents)}
    return contents | {MANIFEST: whole_files.json_bytes({"format": FORMAT, "files": digests})}


def summary(result: "Result") -> Json:
    """A finished run in a few plain numbers: means over its runs, with standard deviations if there are several."""
    guarantee, runs = result.guarantee, result.runs
    numbers: Json = {
        "method": result.config["algorithm"]["name"],
        "rounds": result.rounds,
        "stopped": result.stopped,
        "runs": runs,
        "privacy": guarantee.short,
        **{name: getattr(guarantee, name) for name in ("epsilon", "delta", "unit", "observer")},
    }
    for name, last in result.ends.items():
        if name not in ("run", "round", "answered", "test_confusion") and not name.startswith("epsilon"):
            mean = float(last.mean())
            numbers[name] = int(mean) if name.startswith("bytes") and mean.is_integer() else mean
            with np.errstate(invalid="ignore"):  # a run that went to infinity has no spread
                if runs > 1 and np.ptp(last) > 0:
                    numbers[f"{name}_std"] = float(last.std(ddof=1))
    return numbers


@cache
def versions() -> dict[str, str]:
    """What ran: enough to set the same thing up again, and nothing about whose machine it was.

    Each version is looked up in the files of a distribution, so the answer is kept.
    """
    ran = {"python": platform.python_version(), "sottovoce": metadata.version("sottovoce")}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            ran[package] = metadata.version(package)
    return ran | {"system": platform.system(), "machine": platform.machine()}


# --------------------------------------------------------------------------------------------------------- checkpoints


class Checkpoints:
    """Keeps the last round of a run, on disk at most every `seconds` and whenever `write` is called.

    Hand it to `train` as `after_round`. A folder appears with the first write: a run that is over before leaves none.
    """

    def __init__(
        self, path: Path, config: Tables, data: FederatedData, seconds: float = 2.0, last: Checkpoint | None = None
    ) -> None:
        check.positive("Checkpoints", seconds=seconds)
        self.path, self.last = path, last
        self._config, self._of = config, identity(config, data)
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
        arrays |= {name: np.asarray(getattr(last, name)) for name in COUNTERS}
        content = whole_files.npz_bytes(arrays | {"of": np.asarray(self._of)})
        if (self.path / CHECKPOINT).exists():
            whole_files.replace_file(self.path / CHECKPOINT, content)
        else:
            whole_files.write_folder(self.path, {CONFIG: to_toml(self._config).encode(), CHECKPOINT: content})
        return True


def identity(config: Tables, federation: FederatedData) -> str:
    """Changes with anything that would make the rest of a run disagree with its beginning."""
    return hashlib.sha256((to_toml(config) + fingerprint(*federation.fingerprint_arrays())).encode()).hexdigest()


def _column(numbers: np.ndarray) -> "pa.Array":
    """As `pa.array(numbers)`, which imports pandas."""
    import pyarrow as pa

    memory = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, memory])


def _parquet(history: History, private: set[str]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    table = pa.table({name: _column(history[name]) for name in history.columns})
    mark = {"released": "no: read off private rows"}
    marked = [field.with_metadata(mark) if field.name in private else field for field in table.schema]
    parquet.write_table(table.cast(pa.schema(marked)), sink)
    return sink.getvalue()
