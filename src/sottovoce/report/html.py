"""HTML and JSON in which text from outside stays text: everything is escaped unless it is `Markup` already."""

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache


class Markup(str):
    """Text that is HTML already."""


def element(name: str, /, *children: str | Iterable[str], **attributes: str) -> Markup:
    """<name attributes>children</name>; `class_` is class, `aria_label` is aria-label."""
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{pairs}>{joined(*children)}</{name}>")


def joined(*children: str | Iterable[str]) -> Markup:
    flat = (each for child in children for each in ([child] if isinstance(child, str) else child))
    return Markup("".join(each if isinstance(each, Markup) else html.escape(each) for each in flat))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Markup:
    """A table whose first column names its rows; words stand to the left, numbers to the right."""
    wordy = [any(row[i][:1] not in "+-–0123456789" for row in rows) for i in range(len(headings))]
    classes = [{"class_": "words"} if each else {} for each in wordy]

    def cells(row: Sequence[str], name: str, **first: str) -> list[Markup]:
        begin = element("th", row[0], **first, **classes[0])
        return [begin, *(element(name, _lines(text), **kind) for text, kind in zip(row[1:], classes[1:], strict=True))]

    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", cells(headings, "th", scope="col"))),
        element("tbody", [element("tr", cells(row, "td", scope="row")) for row in rows]),
    )
    return element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)  # wide ones scroll


def _lines(text: str) -> Markup:
    return Markup("<br>".join(html.escape(line) for line in text.split("\n")))


@lru_cache(maxsize=4)  # the script that draws charts has 4 MB
def script(code: str) -> Markup:
    """Code of our own."""
    assert "</script" not in code.lower()
    return Markup(f"<script>{code}</script>")


def data(name: str, value: object) -> Markup:
    """JSON for a script to read. No text in it can end its element: there is no < in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


@lru_cache(maxsize=4)
def allowed(code: str) -> str:
    """How a content security policy names this script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def filled(template: str, **values: str) -> Markup:
    """A page with these values in the places of their names."""
    return Markup(template.format(**{name: joined(value) for name, value in values.items()}))
