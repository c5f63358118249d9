"""What holds for every test: each process computes with one thread, because the suite runs as many as there are cores.

Libraries read these variables when they are first loaded, so they are set before any of them is; programs that a test
starts inherit them. Threads that wait for each other while all cores are busy took most of the time of the suite. The
tests of threads of our own say themselves how many they want (`numba.set_num_threads`).
"""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_collection_finish() -> None:
    """What is imported and collected stays to the end: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()
