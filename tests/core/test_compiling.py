"""Work on several threads: who does which part, and when."""

import signal
import threading
import time

import pytest

from sottovoce.core.compiling import THREADS_PAY_FROM, Threads


def shared(nanoseconds: float, most: int, ends: range = range(11)) -> list[tuple[int, int, bool]]:
    """The parts of the work, in order, and whether the thread that asked did them."""
    threads, here, done = Threads(), threading.get_ident(), list[tuple[int, int, bool]]()
    threads.most = most
    threads.share(lambda low, high: done.append((low, high, threading.get_ident() == here)), ends, nanoseconds)
    return sorted(done)


def test_short_work_is_one_call() -> None:
    assert shared(THREADS_PAY_FROM - 1, 4) == [(0, 10, True)]
    assert shared(THREADS_PAY_FROM, 1) == [(0, 10, True)]


@pytest.mark.parametrize("most", [2, 3, 7])
def test_long_work_is_shared_and_the_thread_that_asks_takes_the_first_part(most: int) -> None:
    parts = shared(THREADS_PAY_FROM, most)
    assert len(parts) == most
    assert [low for low, _, _ in parts] == [0, *(high for _, high, _ in parts[:-1])]
    assert parts[-1][1] == 10
    assert [here for _, _, here in parts] == [True] + [False] * (most - 1)


def test_there_are_no_more_parts_than_cuts() -> None:
    assert len(shared(THREADS_PAY_FROM, 8, range(4))) == 3


@pytest.mark.parametrize("where", [0, 1])
def test_an_error_is_raised_when_all_parts_have_ended(where: int) -> None:
    """They write into arrays of the caller, who may go on to use them after an error."""
    threads, ended, wait = Threads(), list[int](), threading.Event()
    threads.most = 3

    def work(low: int, high: int) -> None:
        if low == where:
            wait.set()
            raise ArithmeticError
        assert wait.wait(60)
        time.sleep(0.05 * low)  # the last part is the last to end
        ended.append(low)

    with pytest.raises(ArithmeticError):
        threads.share(work, range(4), THREADS_PAY_FROM)
    assert sorted(ended) == [part for part in range(3) if part != where]


def test_an_error_of_the_thread_that_asks_comes_first() -> None:
    threads = Threads()
    threads.most = 2

    def work(low: int, high: int) -> None:
        raise KeyboardInterrupt if low == 0 else ArithmeticError

    with pytest.raises(KeyboardInterrupt):
        threads.share(work, range(3), THREADS_PAY_FROM)


def test_ctrl_c_waits_for_all_parts() -> None:
    """Two of them, while the thread that asks waits for the last part: its caller goes on to use what is written."""
    threads, ended = Threads(), list[int]()
    threads.most = 2

    def work(low: int, high: int) -> None:
        if low == 1:
            for _ in range(2):
                time.sleep(0.1)
                signal.raise_signal(signal.SIGINT)  # Python lets the main thread handle it
            time.sleep(0.1)
            ended.append(low)

    with pytest.raises(KeyboardInterrupt):
        threads.share(work, range(3), THREADS_PAY_FROM)
    assert ended == [1]


def test_an_error_without_length_is_an_error() -> None:
    class Empty(Exception):
        def __len__(self) -> int:
            return 0

    threads = Threads()
    threads.most = 2

    def work(low: int, high: int) -> None:
        if low == 1:
            raise Empty

    with pytest.raises(Empty):
        threads.share(work, range(3), THREADS_PAY_FROM)
