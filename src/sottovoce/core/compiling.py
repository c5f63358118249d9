"""When loops are compiled, and how. Compiled loops give the same numbers as NumPy, to the last bit.

Numba is not imported here: it takes seconds to load, so a program that does not use it never waits for it.
"""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Sequence
from types import FunctionType

from sottovoce.core.lazy import untyped

KERNEL_PAYS_FROM, THREADS_PAY_FROM = 4096, 1 << 18  # numbers in one call

Kernel = Callable[..., None]  # writes into its last argument


def compiled_pays(count: int) -> bool:
    """Whether a compiled loop over `count` numbers is worth its overhead. Without Numba there is none."""
    return count >= KERNEL_PAYS_FROM and "numba" in sys.modules


def threads_pay(count: int) -> bool:
    """Whether starting threads takes less time than they save."""
    return count >= THREADS_PAY_FROM


def compile_for(
    signature: object,
    function: FunctionType,
    uses: Sequence[FunctionType] = (),
    tables: object = (),
    **options: bool | set[str],
) -> Kernel:
    """`function` compiled for this signature and no other, and cached on disk if there is a place to write.

    Numba finds its cache by the function's name and by the date of its file. So the name is extended by a hash of
    what else decides the machine code: the options, and the functions (`uses`) and constants (`tables`) that are
    compiled into it from other files.
    """
    code = [(part.__code__.co_code, part.__code__.co_consts, part.__code__.co_names) for part in uses]
    settings = [(name, sorted(value) if isinstance(value, set) else value) for name, value in sorted(options.items())]
    digest = hashlib.sha256(repr((settings, code, tables)).encode()).hexdigest()[:12]
    named = FunctionType(function.__code__, function.__globals__, function.__name__)
    named.__qualname__ = f"{function.__name__}_{digest}"
    kernel = untyped("numba").njit(error_model="numpy", **options)(named)
    with contextlib.suppress(RuntimeError):  # no place to write: compile in each process
        kernel.enable_caching()
    kernel.compile(signature)
    kernel.disable_compile()
    return kernel
