"""The limit: one gradient pass for all clients against one plain read of the same data and a C kernel compiled here."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from benchmarks import clock
from sottovoce.core.arrays import aligned
from sottovoce.core.compiling import THREADS
from sottovoce.problems.rows import Rows

FULL = {"adult": (100, 400, 104), "many small": (100_000, 20, 20), "few large": (10, 100_000, 100)}
QUICK = {"adult": (100, 400, 104), "many small": (5_000, 20, 20), "few large": (10, 2_000, 100)}
CLIP = 1.0


def run(quick: bool = False, turns: int = 21) -> dict[str, Any]:
    library = reference()
    numbers: dict[str, Any] = {"reference": "cc -O3 -march=native -ffast-math" if library else "no C compiler found"}
    for name, (clients, rows, features) in (QUICK if quick else FULL).items():
        print(f"limit: {clients} clients x {rows} rows x {features} features", flush=True)
        numbers[name] = {"shape": [clients, rows, features]} | one_shape(
            library, np.full(clients, rows), features, turns if clients * rows * features < 5e7 else max(5, turns // 3)
        )
    print("limit: unequal clients", flush=True)
    numbers["ragged"] = ragged(2 * turns)
    return numbers


def reference() -> Any:
    """The C kernels as a library, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "reference.so"
        source = Path(__file__).parent / "reference.c"
        flags = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC")
        subprocess.run([compiler, *flags, str(source), "-o", str(built), "-lm"], check=True)
        library = ctypes.CDLL(str(built))
    for stored in ("float64", "float32"):
        getattr(library, f"read_{stored}").restype = ctypes.c_double
    return library


def one_shape(library: Any, sizes: np.ndarray, features: int, turns: int) -> dict[str, Any]:
    X, y, offsets, w = make(sizes, features)
    THREADS.most = 1
    numbers: dict[str, Any] = {"ms": {}}
    for stored in ("float64", "float32"):  # each in turns of its own: every task finds the same rows in the caches
        kept = aligned(X.shape, stored)
        kept[:] = X
        rows = Rows(kept, y, offsets, sv.Logistic(), engine="kernel")
        tasks: dict[str, Callable[[], Any]] = {
            f"pass {stored}": lambda rows=rows: rows.gradient(w, quick=True),
            f"clipped {stored}": lambda rows=rows: rows.gradient(w, clip=CLIP, quick=True),
        }
        if library is not None:
            read, c_pass = in_c(library, kept, y, offsets, w)
            tasks |= {f"read {stored}": read, f"c {stored}": c_pass}
            error = float(np.abs(c_pass() - rows.gradient(w)).max())
            assert stored == "float32" or error < 1e-12, f"the C reference computes something else: {error}"
        if stored == "float64":
            numbers["two threads"] = two_threads(tasks["pass float64"], turns)
            if library is not None:
                numbers["two threads, read"] = two_threads(functools.partial(read_in_parts, library, kept), turns)
        turn = clock.side_by_side(tasks, turns)
        numbers["ms"] |= {name: turn.ms(name) for name in tasks}
        ratios: dict[str, Any] = {"clip over none": turn.ratio_within(f"clipped {stored}", f"pass {stored}")}
        if library is not None:
            ratios["pass over c"] = turn.ratio_within(f"pass {stored}", f"c {stored}")
            ratios["pass over read"] = turn.ratio_within(f"pass {stored}", f"read {stored}")
        numbers[stored] = ratios
    numbers["float32 over float64"] = numbers["ms"]["pass float32"] / numbers["ms"]["pass float64"]
    return numbers


def two_threads(task: Callable[[], Any], turns: int) -> dict[str, Any] | None:
    """How many times faster two threads are, in wall time, by the quickest turn of each; None on one core."""
    if (os.cpu_count() or 1) < 2:
        return None

    def on(threads: int) -> None:
        THREADS.most = threads
        task()

    turn = clock.side_by_side({"one": lambda: on(1), "two": lambda: on(2)}, 2 * turns, time.perf_counter)
    THREADS.most = 1
    return {"gain": turn.best_ratio("one", "two"), "median": turn.ratio_within("one", "two")}


def read_in_parts(library: Any, X: np.ndarray) -> None:
    """A plain read on as many threads as there are: what the machine's memory gains by them."""

    def read(low: int, high: int) -> None:
        library.read_float64(ctypes.c_void_p(X.ctypes.data + 8 * low), ctypes.c_long(high - low))

    THREADS.share(read, [0, X.size // 2, X.size], 1e9)


def ragged(turns: int) -> dict[str, Any]:
    """Log-normal sizes against equal ones, the same 40 000 rows: time of a pass, on one and on two threads."""
    sizes = np.random.default_rng(1).lognormal(0.0, 1.5, 100)
    sizes = np.maximum(1, np.rint(sizes / sizes.sum() * 40_000)).astype(np.int64)
    sizes[np.argmax(sizes)] += 40_000 - sizes.sum()
    tasks = {}
    for name, some in (("equal", np.full(100, 400)), ("ragged", sizes)):
        X, y, offsets, w = make(some, 104)
        rows = Rows(X, y, offsets, sv.Logistic(), engine="kernel")
        tasks[name] = lambda rows=rows, w=w: rows.gradient(w)
    THREADS.most = 1
    turn = clock.side_by_side(tasks, turns)
    numbers: dict[str, Any] = {"largest": int(sizes.max()), "smallest": int(sizes.min())}
    numbers["over equal"] = turn.ratio_within("ragged", "equal")
    if (os.cpu_count() or 1) >= 2:
        THREADS.most = 2
        both = clock.side_by_side(tasks, turns, time.perf_counter)
        numbers["over equal, two threads"] = both.best_ratio("ragged", "equal")
        THREADS.most = 1
    return numbers


def make(sizes: np.ndarray, features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    X = aligned((int(offsets[-1]), features), np.float64)  # as a federation's rows are
    X[:] = rng.standard_normal(X.shape)
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    return X, y, offsets, 0.1 * rng.standard_normal((len(sizes), features))


def in_c(library: Any, X: np.ndarray, y: np.ndarray, offsets: np.ndarray, w: np.ndarray) -> tuple[Callable, Callable]:
    """A plain read and the reference's gradient pass, into an array that is there already."""
    own, out = w.astype(X.dtype), np.empty(w.shape, X.dtype)
    at = [array.ctypes.data_as(ctypes.c_void_p) for array in (X, y, y, offsets, own, out)]
    clients, features, count = (ctypes.c_long(number) for number in (len(w), X.shape[1], X.size))
    read, gradients = (getattr(library, f"{name}_{X.dtype.name}") for name in ("read", "gradients"))

    def c_pass() -> np.ndarray:
        gradients(at[0], at[1], at[2], at[3], clients, features, at[4], ctypes.c_double(0.0), at[5])
        return out

    # The arrays are named here so that they live as long as the functions do.
    return lambda: read(at[0], count) if X.size else None, c_pass
