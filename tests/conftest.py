"""What holds for every test: one thread for each process, files in memory, and nothing left behind but by failures.

The suite runs as many processes as there are cores. Threads that wait for each other while all cores are busy took most
of its time. Libraries read these variables when they are first loaded, so they are set before; programs that a test
starts inherit them. Tests of threads of our own say themselves how many they want (`numba.set_num_threads`).

Ledgers and answers are synced to disk thousands of times, which a disk in memory does at once; what is synced, and in
which order, is tested by looking at the calls. `TMPDIR` names another place.

Hypothesis tries the same examples every time, so that a change is judged by what it changed. To look for new ones:
``pytest --hypothesis-profile=default``.
"""

import gc
import os
import shutil
import tempfile
from importlib import import_module

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

gc.disable()  # until all is imported: it would go through what is there again and again, and find nothing to free

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

IN_MEMORY, ENOUGH = "/dev/shm", 2**31  # bytes
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ENOUGH:
    tempfile.tempdir = os.environ["TMPDIR"] = IN_MEMORY  # pytest has asked before, and the answer is kept


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: the collector of garbage need not look at it, nor come often.

    Long draws are compiled once Numba is there. So it is loaded now: it must not matter which file comes first.
    """
    import_module("numba")
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()
