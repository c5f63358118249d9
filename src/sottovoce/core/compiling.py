"""When loops are compiled, how, and on how many threads work is done. No number depends on that, to the last bit.

Numba is not imported here: it takes seconds to load, so a program that does not use it never waits for it.
"""

import contextlib
import functools
import hashlib
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from importlib import import_module
from types import FunctionType
from typing import Any

KERNEL_PAYS_FROM = 512  # numbers in one call
THREADS_PAY_FROM = 250_000.0  # nanoseconds of work: to wake another thread takes up to a third of that

Kernel = Callable[..., None]  # writes into its last argument


def compiled_pays(count: int) -> bool:
    """Whether a compiled loop over `count` numbers is worth its overhead. Without Numba there is none."""
    return count >= KERNEL_PAYS_FROM and "numba" in sys.modules


class Threads:
    """On how many threads work is done: NUMBA_NUM_THREADS, or as many as this process may use."""

    def __init__(self) -> None:
        self.most = int(os.environ.get("NUMBA_NUM_THREADS") or len(os.sched_getaffinity(0)))

    def share(self, work: Callable[[int, int], None], ends: Sequence[int], nanoseconds: float) -> None:
        """Call work(low, high) so that the calls together go from ends[0] to ends[-1], with cuts at `ends` only.

        `nanoseconds`: about how long one thread would take. Where that is short, one call is quicker than threads are.
        The work must not share out its own parts again: it might wait for the thread that it is done by.
        """
        parts = min(self.most, len(ends) - 1) if nanoseconds >= THREADS_PAY_FROM else 1
        if parts == 1:
            work(ends[0], ends[-1])
        else:
            cuts = [ends[(len(ends) - 1) * part // parts] for part in range(parts + 1)]
            pool, works = _pool(os.getpid(), parts - 1), list[Future[None]]()
            try:
                for low, high in itertools.pairwise(cuts[1:]):  # which warnings NumPy gives is a setting of each thread
                    works.append(pool.submit(copy_context().run, work, low, high))
                work(cuts[0], cuts[1])  # this thread would only wait
            finally:
                _wait_for(works)  # they write into what is shared
            for error in (part.exception() for part in works):
                if error is not None:
                    raise error


THREADS = Threads()


def _wait_for(works: list[Future[None]]) -> None:
    """Until all have ended: Ctrl-C, unless it comes between two steps of this loop, stops what comes after them."""
    stopped: KeyboardInterrupt | None = None
    waiting = True
    while waiting:
        try:
            wait(works)
            waiting = False
        except KeyboardInterrupt as error:
            stopped = stopped or error
    if stopped is not None:
        raise stopped


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process; a copy of it (after a fork) has none of them, and needs its own."""
    return ThreadPoolExecutor(threads, "sottovoce")


def compile_for(signature: object, function: FunctionType, **options: bool | set[str]) -> Kernel:
    """`function` compiled for this signature and no other, and cached on disk if there is a place to write.

    Numba finds its cache by the function's name and by the date of its file. So the name is extended by a hash of
    what else decides the machine code: the options, and the whole text of each other file that has compiled functions
    in it which this one calls. It lets other threads run while it does.
    """
    settings = [(name, sorted(value) if isinstance(value, set) else value) for name, value in sorted(options.items())]
    digest = hashlib.sha256(repr((settings, _texts_of_called(function))).encode()).hexdigest()[:12]
    named = FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    named.__qualname__ = f"{function.__name__}_{digest}"
    kernel = import_module("numba").njit(error_model="numpy", nogil=True, **options)(named)
    with contextlib.suppress(RuntimeError):  # no place to write: compile in each process
        kernel.enable_caching()
    with _telling_watchers():
        kernel.compile(signature)
    kernel.disable_compile()
    return kernel


def intrinsic(build: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's decorator for a function of compiled code that is written in LLVM's own. Callers leave out the first
    parameter of `build`."""
    return import_module("numba.extending").intrinsic(build)


Watcher = Callable[[bool], None]  # is told True when a loop begins to be compiled, and False when it is there
_WATCHERS: list[Watcher] = []


@contextlib.contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Tell `watcher` about every loop that is compiled in here, which takes seconds; not of one in the disk cache."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


@contextlib.contextmanager
def _telling_watchers() -> Generator[None]:
    events = import_module("numba.core.event")

    class Tell(events.Listener):
        inside = 0  # a loop, and those that it calls

        def on_start(self, event: object) -> None:
            self.inside += 1
            self._tell(True, at=1)

        def on_end(self, event: object) -> None:
            self.inside -= 1
            self._tell(False, at=0)

        def _tell(self, begins: bool, at: int) -> None:
            for watcher in _WATCHERS if self.inside == at else []:
                watcher(begins)

    with events.install_listener("numba:compile", Tell()):
        yield


def _texts_of_called(function: FunctionType) -> list[str]:
    """The texts of the other files whose compiled functions this one calls, directly or by others of them."""
    called, to_read = {function}, [function]
    while to_read:
        inner = to_read.pop()
        parts = (inner.__globals__.get(name) for name in inner.__code__.co_names)
        written = (getattr(part, "py_func", getattr(part, "__wrapped__", None)) for part in parts)  # or an intrinsic
        new = {part for part in written if isinstance(part, FunctionType)} - called
        called |= new
        to_read += new
    modules = {part.__module__ for part in called} - {function.__module__}
    return [inspect.getsource(sys.modules[module]) for module in sorted(modules)]
