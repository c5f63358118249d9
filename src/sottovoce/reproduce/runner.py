"""Runs the cells of experiments, keeps each as a Parquet part, and puts the parts together.

A part is named by the digest of its cell's settings: what is there is not run again, so an interrupted run goes on
where it was. Workers are separate processes with one thread each and are told names and numbers only.
"""

import io
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check
from sottovoce.experiment import whole_files
from sottovoce.reproduce.experiment import Cell, Experiment, Table

if TYPE_CHECKING:
    from pyarrow import Table as ArrowTable

Progress = Callable[[str, int, int], None]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


def run(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    again: bool = False,
    pool: ProcessPoolExecutor | None = None,
    progress: Progress = lambda what, done, of: None,
) -> Table:
    """Do the cells that are not done, in `workers` if given, write `out/NAME.parquet`, and return it."""
    cells = experiment.cells(quick)
    check.require(len(cells) > 0, experiment.name, "has no cells")
    parts = [part(out, experiment, cell) for cell in cells]
    todo = [number for number, path in enumerate(parts) if again or not path.exists()]
    done = len(cells) - len(todo)
    progress(experiment.name, done, len(cells))
    shared = [number for number in todo if pool is not None and not cells[number].alone]
    waiting: set[Future] = set()
    if pool is not None:
        waiting = {pool.submit(_work, experiment.name, quick, number, str(parts[number])) for number in shared}
    while waiting:
        ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            future.result()
            done += 1
        progress(experiment.name, done, len(cells))
    for number in sorted(set(todo) - set(shared)):
        _keep(cells[number], parts[number])
        done += 1
        progress(experiment.name, done, len(cells))
    return _together(experiment, out, parts, quick)


@contextmanager
def workers(jobs: int) -> Iterator[ProcessPoolExecutor | None]:
    """`jobs` processes to run cells in; None for one, which is this process. They end with the context, done or not."""
    if jobs <= 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)
    with _environment(_ONE_THREAD):
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()  # parts are written whole or not at all
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def part(out: Path, experiment: Experiment, cell: Cell) -> Path:
    return out / "cells" / experiment.name / f"{cell.digest()}.parquet"


def read(path: Path) -> tuple[Table, bool]:
    """An experiment's table, and whether it is a quick one."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as error:
        raise check.InvalidInput(f"{path}: must be a Parquet file ({error}). Delete it and run again") from None
    columns = {name: table.column(name).to_numpy() for name in table.column_names}  # what a cell lacks is NaN or None
    return Table(columns), (table.schema.metadata or {}).get(b"size") == b"quick"


def cpu_seconds(path: Path) -> float:
    """What an experiment's cells took, all together."""
    from pyarrow import parquet

    return float((parquet.read_schema(path).metadata or {}).get(b"cpu_seconds", "nan"))


def _keep(cell: Cell, path: Path) -> None:
    import pyarrow as pa

    begun = time.process_time()
    columns = {name: np.ascontiguousarray(column) for name, column in cell.run().columns.items()}
    taken = {"cpu_seconds": f"{time.process_time() - begun:.2f}"}
    _write(path, pa.table(columns).replace_schema_metadata(taken))


def _together(experiment: Experiment, out: Path, parts: Sequence[Path], quick: bool) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    tables = [parquet.read_table(path) for path in parts]
    joined = pa.concat_tables(tables, promote_options="permissive")
    path = out / f"{experiment.name}.parquet"
    taken = sum(cpu_seconds(part) for part in parts)
    _write(path, joined.replace_schema_metadata({"size": "quick" if quick else "full", "cpu_seconds": f"{taken:.1f}"}))
    return read(path)[0]


def _write(path: Path, table: "ArrowTable") -> None:
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd")
    whole_files.replace_file(path, sink.getvalue())


def _work(name: str, quick: bool, number: int, path: str) -> None:
    """In a worker: it finds the experiment by its name."""
    from sottovoce.reproduce.registry import EXPERIMENTS

    _keep(EXPERIMENTS[name].cells(quick)[number], Path(path))


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed could not end us."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Workers inherit it when they start."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
