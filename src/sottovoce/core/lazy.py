"""Modules that are imported when somebody first uses them: `import sottovoce` alone takes almost no time."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def modules_of(package: str) -> Callable[[str], ModuleType]:
    """Make the `__getattr__` of a package: `package.name` imports the module `name`.

    Examples
    --------
    >>> from sottovoce.core.lazy import modules_of
    >>> modules_of("sottovoce")("problems").__name__
    'sottovoce.problems'
    """

    def load(name: str) -> ModuleType:
        path = f"{package}.{name}"
        if not name.startswith("_"):  # sottovoce.__main__ would start the command line
            try:
                return import_module(path)
            except ModuleNotFoundError as error:
                if error.name != path:  # the module exists, but something that it imports does not
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
