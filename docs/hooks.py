"""What the docs read from the code while they are built, so that it cannot go stale."""

import re
from pathlib import Path

ALGORITHMS = Path(__file__).parent.parent / "src" / "sottovoce" / "algorithms"
_PLACE = r"\(\d+[a-e]?\)|\blines? \d|\b(?:Prop\.|Proposition|Theorem|Lemma) \d"  # in a paper or its algorithm box
_EQUATION = re.compile(rf"^(?P<code>\s*[^#\s].*?)  # (?P<said>.*(?:{_PLACE}).*)$")


def equations(name: str) -> list[tuple[int, str, str]]:
    """(line number, comment, code) of every line of algorithms/NAME.py that names a place in its paper."""
    lines = (ALGORITHMS / f"{name}.py").read_text(encoding="utf-8").splitlines()
    found = ((number, _EQUATION.match(line)) for number, line in enumerate(lines, start=1))
    return [(number, match["said"], match["code"].strip()) for number, match in found if match]


def departures(name: str) -> str:
    """The "Departures from the paper" of algorithms/NAME.py."""
    text = (ALGORITHMS / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]
    _, _, said = text.partition("Departures from the paper\n-------------------------\n")
    return said.strip()


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill in `<!-- equations NAME -->` and `<!-- departures NAME -->`."""

    def table(match: re.Match) -> str:
        rows = [
            f"| {said} | `algorithms/{match[1]}.py:{number}` | `{code}` |" for number, said, code in equations(match[1])
        ]
        return "\n".join(
            ["| in the paper | line | code |", "|---|---|---|", *(row.replace("||", "\\|\\|") for row in rows)]
        )

    markdown = re.sub(r"<!-- equations (\w+) -->", table, markdown)
    return re.sub(r"<!-- departures (\w+) -->", lambda match: departures(match[1]), markdown)
