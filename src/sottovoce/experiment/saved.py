"""Run folders are read here: finished runs, their parts, and the checkpoint of one that is not finished."""

from pathlib import Path

import numpy as np

from sottovoce.core import check, codec
from sottovoce.core.contract import Hub
from sottovoce.core.files import read_bytes
from sottovoce.core.plain import Columns, Json
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.core.round import Checkpoint, History
from sottovoce.experiment import store
from sottovoce.experiment.evaluation import PrivateEvaluation
from sottovoce.experiment.result import Result
from sottovoce.experiment.run_file import TABLES, build_objective
from sottovoce.experiment.tables import Tables, read_tables
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import CLIENTS
from sottovoce.experiment.vertical_result import VerticalResult
from sottovoce.experiment.whole_files import read_arrays, read_json
from sottovoce.ledger.charges import Charges
from sottovoce.privacy.guarantee import Guarantee
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.objective import Objective
from sottovoce.problems.schema import Schema


def load_result(path: str | Path) -> Result:
    """Read a finished run back from the folder that `Result.save` wrote.

    Examples
    --------
    >>> import tempfile
    >>> import sottovoce as sv
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0], [0.9], [-0.8]], [1, -1, 1, -1], groups=["a", "a", "b", "b"])
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> result = sv.train(sv.DPADMM(), fed, goal, rounds=10, privacy=sv.NoPrivacy(), seed=0, engine="numpy")
    >>> with tempfile.TemporaryDirectory() as home:
    ...     sv.load_result(result.save(home + "/run")).predict([[0.5], [-0.3]])
    array([ 1., -1.])
    """
    path = Path(path)
    must_be_finished(path)
    parts = load_parts(path)
    config, weights = parts["config"], parts["model"]
    objective = build_objective(config.get("objective", {}), f"{path / store.CONFIG}, [objective]")
    widths = _widths(config, objective, str(path / store.CONFIG))
    if not widths:
        return Result(objective=objective, **parts)
    size = sum(widths) * objective.loss.outputs
    rule = f"must hold {size} numbers (or none, if none were released)"
    check.require(weights.shape[-1] in (0, size), str(path / store.MODEL), rule, weights.shape)
    return VerticalResult(objective=objective, **parts, widths=tuple(widths))


def _widths(config: Tables, objective: Objective, where: str) -> list[int]:
    """How many columns each party's model has; none where rows are split."""
    if "schema" in config:
        schema = Schema.from_tables(config["schema"], f"{where}, [schema]")
        return [schema.part(party).width for party in schema.parties]
    data = config.get("data", {})
    widths = data.get("split") or []
    fits = isinstance(widths, list) and all(isinstance(width, int) and width > 0 for width in widths)
    check.require(fits, where, "[data] split must be the numbers of columns of the parties", widths)
    return [width + (objective.intercept and m == data.get("holder", 0)) for m, width in enumerate(widths)]


def load_parts(path: Path) -> Json:
    """The fields of a finished run's `Result` but for the objective, which may be code that no file brings along."""
    config = read_tables(path / store.CONFIG, TABLES)
    arrays, outcome = read_arrays(path / store.MODEL), read_json(path / store.SUMMARY)
    check.require("model" in arrays, str(path / store.MODEL), "must hold an array 'model'", sorted(arrays))
    try:
        guarantee = Guarantee.from_dict(read_json(path / store.GUARANTEE))
        rounds, stopped = int(outcome["rounds"]), str(outcome["stopped"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise check.InvalidInput(f"{path}: {store.GUARANTEE} or {store.SUMMARY} was altered ({error})") from None
    weights = arrays["model"]
    fits = weights.dtype == np.float64 and weights.ndim in (1, 2)
    check.require(fits, str(path / store.MODEL), "must hold float64 numbers, (dim,) or (runs, dim)", weights.shape)
    return {
        "model": weights,
        "standard_errors": arrays.get("standard_errors"),
        **({"sums": arrays["sums"]} if "sums" in arrays else {}),
        "history": _read_history(path / store.HISTORY),
        "guarantee": guarantee,
        "rounds": rounds,
        "stopped": stopped,
        "config": config,
        "charges": load_charges(path)[0],
        "metrics": _read_metrics(path / store.METRICS) if (path / store.METRICS).exists() else {},
        "evaluations": _read_evaluations(path / store.EVALUATION) if (path / store.EVALUATION).exists() else (),
    }


def load_charges(path: Path) -> tuple[Charges | None, Json]:
    """What a finished run's ledgers were charged (None: it had none), and the seal beside it."""
    file, where = read_json(path / store.CHARGES), str(path / store.CHARGES)
    fits = file.keys() == {"charges", "seal"} and isinstance(file["seal"], dict)
    check.require(fits, where, "must hold charges and their seal", sorted(file))
    fits = file["charges"] is None or isinstance(file["charges"], dict)
    check.require(fits, where, "charges must be an object or null")
    return None if file["charges"] is None else Charges.from_dict(file["charges"]), file["seal"]


def load_checkpoint(path: Path, task: Task, federation: FederatedData, config: Tables) -> Checkpoint:
    """The checkpoint in a run folder, for `train(resume=...)`; one of another config or other rows is refused."""
    must_be_unfinished(path)
    where, arrays = str(path / store.CHECKPOINT), read_arrays(path / store.CHECKPOINT)
    rule = "belongs to another config or to other rows; put them back as they were, or start again without --resume"
    check.require(arrays.get("of", np.asarray("")).tolist() == store.identity(config, federation), where, rule)
    for name in store.COUNTERS:
        fits = name in arrays and arrays[name].shape == () and arrays[name].dtype.kind in "iuf"
        check.require(fits, where, f"must hold a number {name!r}")
    task = task.settled(task.objective.on(federation))  # what a state looks like follows from the settled method
    like = task.algorithm.init_server(_hub(federation, task, config))
    server = codec.from_arrays(type(like), codec.under("server.", arrays), like=like)
    history = _history({name: column.tolist() for name, column in codec.under("history.", arrays).items()}, where)
    counters = {name: arrays[name].item() for name in store.COUNTERS}
    check.whole(where, k=counters["k"])
    clients = codec.under("clients.", arrays)
    return Checkpoint(server=server, clients=clients, history=history, recorded=len(history), **counters)


def must_be_there(path: Path) -> None:
    if not path.is_dir():
        raise check.MissingData(f"{path}: there is no such run folder")


def must_be_finished(path: Path) -> None:
    """Refuse a folder that holds no run, one that is not finished, or one of another format."""
    must_be_there(path)
    if (path / store.CHECKPOINT).exists():
        raise check.InvalidInput(f"{path}: this run is not finished. Go on with: sottovoce run --resume {path}")
    whole = (path / store.MANIFEST).exists()
    if not whole and not (path / store.CONFIG).exists():
        raise check.MissingData(f"{path}: holds no run: there is no {store.CONFIG}")
    rule, hint = f"must be a run folder of format {store.FORMAT}", "Use the version of sottovoce that wrote it"
    check.require(whole, str(path), f"{rule}, and has no {store.MANIFEST}", hint=hint)
    form = read_json(path / store.MANIFEST).get("format")
    check.require(form == store.FORMAT, str(path), rule, form, hint)


def must_be_unfinished(path: Path) -> None:
    """Refuse a folder from which no run can go on."""
    must_be_there(path)
    if not (path / store.CHECKPOINT).exists():
        check.require(not (path / store.MODEL).exists(), str(path), "this run is finished, there is nothing to resume")
        raise check.MissingData(f"{path}: holds no {store.CHECKPOINT}, so there is nothing to resume")


def _read_metrics(path: Path) -> Columns:
    """What was measured on test rows; a number that did not exist was written as null."""
    columns = read_json(path)
    fits = all(isinstance(values, list) and values for values in columns.values())
    check.require(fits, str(path), "must hold a list of numbers for each metric", sorted(columns))
    try:
        return {name: np.array(values, dtype=np.float64).tolist() for name, values in columns.items()}
    except (TypeError, ValueError):
        raise check.InvalidInput(f"{path}: must hold numbers") from None


def _read_evaluations(path: Path) -> tuple[PrivateEvaluation, ...]:
    """The private estimates, one for each run."""
    runs = read_json(path).get("runs")
    fits = isinstance(runs, list) and all(isinstance(each, dict) for each in runs)
    check.require(fits, str(path), "must hold a list of runs")
    return tuple(PrivateEvaluation.from_dict(each, str(path)) for each in runs or ())


def _read_history(path: Path) -> History:
    import pyarrow as pa
    from pyarrow import parquet

    content = read_bytes(path)
    try:
        table = parquet.read_table(pa.BufferReader(content))
    except (OSError, pa.ArrowException) as error:
        raise check.InvalidInput(f"{path}: must be a Parquet file ({error})") from None
    return _history(table.to_pydict(), str(path))


def _history(columns: Columns, where: str) -> History:
    lengths = {len(column) for column in columns.values()}
    check.require(len(lengths) <= 1, where, "the columns of a history must be equally long", tuple(sorted(lengths)))
    return History(columns)


def _hub(federation: FederatedData, task: Task, config: Tables) -> Hub:
    """The server's side before the first round: what its state looks like follows from it."""
    runs = config["run"].get("runs") or None
    lead = () if runs is None else (runs,)
    rng = Draw(Streams(config["run"].get("seed", 0), runs), np.array([SERVER], dtype=np.uint64), 0)
    kind, objective = CLIENTS[federation.layout], task.objective
    federation = objective.on(federation)
    nobody = np.zeros((*lead, federation.n, 1), dtype=bool)
    zeros = np.zeros((*lead, 1, federation.message_size(objective.loss)))
    return Hub(federation.n, objective.penalty, rng, 0, nobody, zeros, kind.labels_of(federation, objective))
