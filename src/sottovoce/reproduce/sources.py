"""What a cell's numbers depend on, as text: the source of its function, of what that names, and so on.

Only functions, classes and constants of the experiments and of the algorithms are followed: that is where the numbers
of a table are decided. What changes elsewhere in the library shows in its version, or is run with `--again`.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from sottovoce.privacy.noise_key import stable_text

FOLLOWED = ("sottovoce.reproduce.", "sottovoce.algorithms.")
CONSTANTS = (str, int, float, tuple, list)


@lru_cache(maxsize=256)
def text_of(work: Any) -> str:
    """The same in every process; another one where anything that `work` names was changed."""
    found: dict[str, str] = {}
    _follow(_name(work), work, found)
    return "\n".join(found[name] for name in sorted(found))


def _follow(name: str, thing: Any, found: dict[str, str]) -> None:
    """Note a function or a class, and what it names."""
    if name in found:
        return
    found[name] = inspect.getsource(thing)
    for one in _functions(thing):
        used = {key: one.__globals__[key] for key in _names(one.__code__) if key in one.__globals__}
        defaults = dict(enumerate(one.__defaults__ or ())) | (one.__kwdefaults__ or {})
        for key, value in used.items():
            _note(f"{one.__module__}:{key}", value, found)
        for key, value in defaults.items():
            _note(f"{name}({key})", value, found)


def _note(name: str, value: Any, found: dict[str, str]) -> None:
    """What a name stands for: something to follow, several of them, or a constant."""
    if hasattr(value, "__qualname__"):
        for one in value.__mro__ if isinstance(value, type) else (inspect.unwrap(value),):
            if (one.__module__ or "").startswith(FOLLOWED):
                _follow(name if one.__name__ == "<lambda>" else _name(one), one, found)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _note(f"{name}[{key!r}]", each, found)
    elif isinstance(value, CONSTANTS) or is_dataclass(value):
        text = stable_text(value)
        found[name] = name if " at 0x" in text else f"{name} = {text}"  # an address is another one in every process


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _functions(thing: Any) -> Iterator[FunctionType]:
    """The function itself, or the methods of a class."""
    for one in vars(thing).values() if isinstance(thing, type) else (inspect.unwrap(thing),):
        inner = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if isinstance(inner, FunctionType):
            yield inner


def _names(code: CodeType) -> set[str]:
    """All names in a function, and in functions inside it."""
    inside = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return {name for name in set(code.co_names).union(*inside) if not name.startswith("__")}
