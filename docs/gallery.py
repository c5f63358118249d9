"""Turns every `examples/plot_*.py` into a page while the docs are built: its text, its code, what it printed and drew.

A file is Markdown in its docstring, then blocks that begin with `# %%`: comment lines, which are Markdown, and code.
All blocks run one after the other, in one module, with warnings as errors. A page is made again when its file changes.

The variable GALLERY_EXAMPLES names another folder with files of these names: a test runs smaller ones.
"""

import contextlib
import io
import logging
import os
import re
import sys
import types
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from textwrap import fill
from typing import Any

from mkdocs.structure.files import File

EXAMPLES = Path(os.environ.get("GALLERY_EXAMPLES") or Path(__file__).parent.parent / "examples")


def blocks(source: str) -> Iterator[tuple[str, str, int]]:
    """(text, code, line that the code starts in) of each block; the docstring is the first."""
    _, docstring, rest = source.split('"""', 2)
    yield docstring.strip(), "", 1
    line = (docstring + '"""').count("\n") + 1
    for part in re.split(r"^# %%\n", rest, flags=re.MULTILINE):
        text = re.match(r"(#.*\n)*", part)[0]  # type: ignore[index]  (it always matches, if only nothing)
        if part.strip():
            code = part[len(text) :]
            yield re.sub(r"^# ?", "", text, flags=re.MULTILINE), code, line + text.count("\n")
        line += part.count("\n") + 1


@lru_cache
def page(name: str, source: str) -> tuple[str, dict[str, bytes]]:
    """Markdown, and the figures by file name. `source` is run: it is our own."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from sottovoce.report.style import ON_WHITE, PARAMETERS

    look = {**PARAMETERS, "axes.prop_cycle": plt.cycler(color=ON_WHITE)}
    written, figures = [], {}
    module = types.ModuleType(f"gallery_{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    with plt.style.context(look), warnings.catch_warnings():
        warnings.simplefilter("error")
        plt.show = lambda: None  # the figures stay open, and are saved below
        for text, code, line in blocks(source):
            written.append(text.strip())
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * (line - 1) + code, str(EXAMPLES / f"{name}.py"), "exec"), module.__dict__)
            if code.strip():
                written.append(f"```python\n{code.strip()}\n```")
            if printed.getvalue():
                lines = (fill(line, 96) for line in printed.getvalue().rstrip().split("\n"))
                written.append("\n".join(['```text title="printed"', *lines, "```"]))
            for number in plt.get_fignums():
                figure, drawn = plt.figure(number), io.BytesIO()
                figure.savefig(drawn, format="png", metadata={"Software": None})
                plt.close(figure)
                file = f"{name}_{len(figures) + 1}.png"
                figures[file] = drawn.getvalue()
                written.append(f"![{'; '.join(axes.get_title() for axes in figure.axes)}]({file})")
    written.append(f"The file: `examples/{name}.py`.")
    return "\n\n".join(part for part in written if part), figures


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages and their figures, and an overview in the order in which the navigation names them."""
    (named,) = (entry["Gallery"] for entry in config["nav"] if "Gallery" in entry)
    order = [Path(where).stem for entry in named for where in entry.values()][1:]
    there = sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))
    assert sorted(order) == there, f"the navigation in mkdocs.yml must name every example: {there}"
    overview = ["# Gallery", "Each page is a file in `examples/`, run while these pages were made."]
    for name in order:
        logging.getLogger("mkdocs.hooks.gallery").info("Running examples/%s.py", name)
        markdown, figures = page(name, (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        title, story, *_ = markdown.split("\n\n")
        heading = title.removeprefix("# ")
        overview += [f"## [{heading}]({name}.md)", story, f"[![{heading}]({next(iter(figures))})]({name}.md)"]
        files.append(File.generated(config, f"gallery/{name}.md", content=markdown))
        for file, drawn in figures.items():
            files.append(File.generated(config, f"gallery/{file}", content=drawn))
    files.append(File.generated(config, "gallery/index.md", content="\n\n".join(overview)))
    return files
