"""`sottovoce examples`."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from sottovoce.cli import terminal


def examples(
    folder: Annotated[Path, Argument(metavar="DIR", help="Where to write them. Must not exist.")],
    as_json: terminal.Json = False,
) -> None:
    """Copy the examples that come with the package: run files, schemas, and the rows of three hospitals."""
    import shutil

    from sottovoce.experiment import whole_files

    source = _source()
    with whole_files.new_folder(folder) as made:
        for path in sorted(source.rglob("*")):
            if path.suffix in (".toml", ".csv", ".py"):
                (made / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, made / path.relative_to(source))
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    terminal.show_files(as_json, folder, names)


def _source() -> Path:
    """Where the examples are: in the package as it is installed, beside `src` in a checkout."""
    import sottovoce
    from sottovoce.core.check import MissingData

    package = Path(sottovoce.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "hospitals").is_dir():
            return folder
    raise MissingData("examples: they are not installed. Install the package again")
