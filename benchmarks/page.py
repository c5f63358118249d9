"""docs/speed.md and its figure, from the JSON files of the sections. A target that is missed is marked as such."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import clock, loop

DOCS = Path(__file__).parents[1] / "docs"
Numbers = dict[str, Any]

HEAD = """# Speed

Made by `make bench` (`python -m benchmarks`, section by section), from the files in `benchmarks/results/`.

Times are CPU milliseconds of one thread unless said otherwise, medians of tasks that ran in turn, and ratios are taken
within a turn: a busy machine slows both sides alike. Intervals are for the median over turns, by order statistics, and
cover it with a probability of 95 %; of fewer than six turns they are the whole range. "Target" is what was set before
anything was measured; **missed** stands where it was not reached, with the reason. A *pass* is the gradient of a
logistic loss for all clients, each at its own point.
"""


def write(folder: Path) -> None:
    parts = [HEAD]
    for name, section in (
        ("loop", loop.page), ("limit", _limit), ("methods", _methods), ("peers", _peers), ("start", _start),
        ("montecarlo", _montecarlo),
        ("machines", _machines),
        ("columns", _columns),
        ("sums", _sums),
    ):  # fmt: skip
        numbers = clock.kept(name)
        if numbers is not None:
            about = numbers["about"]
            lines = [*section(numbers), f"*{about['date']}, {about['cores']} cores, load {about['load']:g}.*"]
            parts.append("\n".join(lines) + "\n")
    peers = clock.kept("peers")
    if peers is not None and peers.get("peers"):
        folder.mkdir(parents=True, exist_ok=True)
        _draw(peers, folder / "speed.png")
        parts.insert(1, "![CPU milliseconds a round, peers and sottovoce](speed.png)\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.md").write_text("\n".join(parts))
    print(f"wrote {folder / 'speed.md'}")


def _table(*rows: tuple[Any, ...]) -> Iterator[str]:
    """The first row is the head."""
    head, *body = rows
    yield "| " + " | ".join(map(str, head)) + " |"
    yield "|" + "---|" * len(head)
    for row in body:
        yield "| " + " | ".join(map(str, row)) + " |"
    yield ""


def _most(value: float | None, target: float, form: str = "{:.2f}") -> str:
    """A number that should be at most `target`."""
    if value is None:
        return "–"
    return form.format(value) + ("" if value <= target else " **missed**")


def _least(value: float | None, target: float, form: str = "{:.1f}") -> str:
    if value is None:
        return "–"
    return form.format(value) + ("" if value >= target else " **missed**")


def _within(one: Numbers | None, form: str = "{:.2f}") -> str:
    """The interval of a ratio, where it has one."""
    return "" if one is None or "low" not in one else f" ({form.format(one['low'])} to {form.format(one['high'])})"


def _at_most(one: Numbers | None, target: float, form: str = "{:.2f}") -> str:
    """A ratio with its interval, which should be at most `target`."""
    return "–" if one is None else _most(one["ratio"], target, form) + _within(one, form)


def _limit(numbers: Numbers) -> Iterator[str]:
    yield "## 2. The limit\n"
    yield (
        f"One pass, compiled kernel, against one plain read of the same rows and a C kernel ({numbers['reference']}) "
        "that does the same in one fused pass. With float32 rows our kernel computes margins, slopes and sums of four "
        "terms in float32 and adds those up in float64, for the sake of the guarantee; the C kernel does all in "
        "float32.\n"
    )
    rows: list[tuple[Any, ...]] = [
        ("clients x rows x features", "rows stored as", "ms", "over C (target 1.0)", "over a read (target 3)",
         "clipping (target 1.10)", "two threads, quickest (target 1.6)", "median", "a read on two")
    ]  # fmt: skip
    for name in ("adult", "many small", "few large"):
        shape, one = " x ".join(f"{n:,}".replace(",", " ") for n in numbers[name]["shape"]), numbers[name]
        for stored in ("float64", "float32"):
            ratio, threads = one[stored], one["two threads"] if stored == "float64" else None
            rows.append(
                (
                    shape,
                    stored,
                    f"{one['ms'][f'pass {stored}']:.2f}",
                    _at_most(ratio.get("pass over c"), 1.0),
                    _at_most(ratio.get("pass over read"), 3.0 if stored == "float64" else float("inf")),
                    _at_most(ratio["clip over none"], 1.1),
                    _least(threads and threads["gain"], 1.6, "{:.2f} times faster"),
                    f"{threads['median']['ratio']:.2f}{_within(threads['median'])}" if threads else "–",
                    f"{one['two threads, read']['gain']:.2f}" if threads and "two threads, read" in one else "–",
                )
            )
    yield from _table(*rows)
    ragged = numbers["ragged"]
    two = ragged.get("over equal, two threads")
    yield (
        f"Unequal clients (log-normal, {ragged['smallest']} to {ragged['largest']} rows) against equal ones with as "
        f"many rows in all: {ragged['over equal']['ratio']:.2f} times the time on one thread"
        + (f", {two:.2f} on two" if two else "")
        + ". Two threads are compared by wall time: other work on the machine lowers what they gain, so the quickest "
        "turn of each is shown beside the median. How much the memory gives to two threads changes with the hour on a "
        "shared machine: the last column has what a plain read gained by its quickest turns just after.\n"
    )


def _methods(numbers: Numbers) -> Iterator[str]:
    yield "## 3. Whole methods\n"
    yield (
        "100 clients x 400 x 104, float64. A round against the passes over the data that it makes (target: 1.5 times). "
        "P and B are other places for proven noise. ADMM, PVP and DVP ask for arg-mins, and a solver decides how many "
        "passes these take.\n"
    )
    rows: list[tuple[Any, ...]] = [
        ("method", "passes", "no privacy", "published noise", "proven", "ms a round, proven")
    ]
    for name in dict.fromkeys(name.rsplit(" ", 1)[0] for name in numbers["rounds"]):
        modes = {mode: numbers["rounds"].get(f"{name} {mode}") for mode in ("none", "published", "proven")}
        ratios = (_most(one and one["ratio"], 1.5) for one in modes.values())
        some, proven = next(filter(None, modes.values())), modes["proven"]
        rows.append((name, some["needed"], *ratios, f"{proven['round_ms']:.2f}" if proven else "–"))
    yield from _table(*rows)
    yield (
        "FedEPM has the most to do beside its one pass: twelve steps on 100 x 104 numbers, a sort of them, and their "
        "noise. A faster kernel makes all these ratios larger: what comes beside a pass takes as long as before.\n"
    )
    sharing = numbers["sharing"]
    yield (
        f"ADMM sharing (4000 samples, 35 + 35 + 34 columns): {sharing['ms']:.2f} ms a round, "
        f"{sharing['over products']:.1f} times the two products with each party's columns, and "
        f"{sharing['over scipy']:.2f} times a plain SciPy script of the same iterations.\n"
    )
    yield (
        "What `train` adds to the passes of FedAvg: loop, ledger, noise, history (target: at most 15 %). Beside as "
        "many passes in a row, which find as many of their rows in the caches as they can; and beside a pass alone, "
        "between other work. *Bare*: the same passes, noise, steps and means in a script that counts, checks, seals "
        "and records nothing.\n"
    )
    modes = {"none": "no privacy", "proven": "proven"}
    histories = {"released": "", "bare": "bare, ", "objective": "objective recorded, "}
    rows = [("", *(histories[history] + modes[mode] for history, mode in itertools.product(histories, modes)))]
    for name, one in numbers["train"].items():
        for beside, words in (("in a row", "passes in a row"), ("alone", "a pass alone")):
            added = [one[f"{mode}, released"][beside] for mode in modes]
            shown = [_at_most(each, 0.15, "{:.0%}") for each in added]
            others = [one[f"{mode}, {history}"][beside] for history in ("bare", "objective") for mode in modes]
            rows.append((f"{name}; {words}", *shown, *(f"{each['ratio']:.0%}" for each in others)))
    yield from _table(*rows)
    added = {
        name: tuple(
            f"{ms:.2f}" for ms in (one["passes ms"], one["none, released"]["ms"], one["proven, released"]["ms"])
        )
        for name, one in numbers["train"].items()
    }
    few, many = added["one step"], added["one step, 2000 rows a client"]
    bare = numbers["train"]["one step"]["proven, bare"]
    yield (
        f"To a step of {few[0]} ms, in a row, that is {few[1]} ms a round without privacy and {few[2]} ms with it; to "
        f"one of {many[0]} ms, with 2000 rows a client, {many[1]} and {many[2]} ms: some hundred calls of Python, and "
        "with privacy normal numbers, hashes, ledger and epsilon. The quicker a pass is, the larger is their share: "
        f"bare noise, step and mean alone take {bare['ms']:.2f} ms, {bare['in a row']['ratio']:.0%} of a step. "
        "When the target was set, a pass took 2 ms, of which 15 % are 0.3 ms. Recording the objective is one more "
        "look at all rows, which a deployment does not have.\n"
    )
    million = numbers["million"]
    yield (
        f"{million['clients']:,} clients of 10 rows, d = 20, DP-ADMM with proven noise, one process (target: 3 GiB).\n"
    )
    rows = [("rows stored as", "peak memory, GiB", "KiB a client", "CPU seconds a round", "wall seconds a round")]
    for stored in ("float64", "float32"):
        one = million[stored]
        each = f"{one['GiB']['ratio'] * 2**20 / million['clients']:.1f}"
        rows.append((stored, _at_most(one["GiB"], 3.0), each, f"{one['cpu']:.2f}", f"{one['wall']:.2f}"))
    yield from _table(*rows)
    growth = {axis: _most(one["exponent"], 1.05) for axis, one in numbers["growth"].items()}
    yield (
        "Growth of the time of a round, as an exponent (target: at most 1.05): "
        + ", ".join(f"{value} in {axis}" for axis, value in growth.items())
        + ".\n"
    )
    error = numbers["float32"]
    yield (
        f"Rows in float32 (`federation.in_float32()`) move the objective after 100 rounds by "
        f"{error['objective']:.1e}, and the model by {error['model']:.1e} of its largest entry. That is without noise: "
        "noise is bound to how rows are stored, so noisy runs differ by a draw, which moves the objective by "
        f"{error['between draws of noise']:.1e}.\n"
    )


TARGETS = {
    "JAX, vmap": 1, "decent-bench FedAvg": 5, "decent-bench Fed-LT": 5, "FedJAX": 15, "pfl-research": 25, "fluke": 25,
    "APPFL FedAvg": 200, "APPFL IIADMM": 200, "Flower simulation": 200,
}  # fmt: skip


def _peers(numbers: Numbers) -> Iterator[str]:
    yield "## 4. Peers\n"
    yield (
        "FedAvg (unless named otherwise) on 100 clients x 400 rows x 104 features in float32, full participation, one "
        "and five full-batch local steps. Ours runs with the ledger and proven noise on; the peers without privacy. "
        "All peers that run FedAvg end at the same objective.\n"
    )
    rows: list[tuple[Any, ...]] = [
        ("", "CPU ms a round, 1 step", "5 steps", "ours is faster, 1 step", "5 steps", "target", "wall ms, 1 step",
         "peak MB", "installed MB", "lines"),
    ]  # fmt: skip
    mine = numbers.get("ours", {})
    for name in mine.get("1", {}):
        one, five = mine["1"][name], mine["5"][name]
        base = [mine[steps]["sottovoce"]["ms"] for steps in ("1", "5")]
        faster = [
            "–" if name.startswith("sottovoce") else _least(some["ms"] / of, 1, "{:.2f}")
            for some, of in zip((one, five), base, strict=True)
        ]
        rows.append(
            (
                *(name, f"{one['ms']:.2f}", f"{five['ms']:.2f}", *faster, 1 if name == "NumPy loop" else ""),
                *(f"{one['wall ms']:.2f}", f"{one['megabytes']:.0f}", "", one["lines"]),
            )
        )
    missing = []
    for name, peer in numbers["peers"].items():
        if "missing" in peer:
            missing.append(f"{name}: {peer['missing']}")
            continue
        one, five, target = peer["1"], peer.get("5"), TARGETS[name]
        rows.append(
            (
                *(name, f"{one['ms']:.3g}", f"{five['ms']:.3g}" if five else "–"),
                *(_over_ours(some, target) for some in (one, five)),
                *(target, f"{one['wall ms']:.3g}", f"{one['megabytes']:.0f}"),
                *(f"{peer['install']['megabytes']:.0f}", peer["lines"]),
            )
        )
    yield from _table(*rows)
    for line in missing:
        yield f"Not measured here: {line}.\n"
    beside = [
        some["ours ms"] for peer in numbers["peers"].values() for key, some in peer.items() if key == "1" and some
    ]
    yield (
        "Rows of the NumPy loop and of ours are medians of runs of their own; section 1 compares the two in turns. "
        f"Beside the peers a round of ours with one step took {min(beside):.2f} to {max(beside):.2f} ms. A peer that "
        "was measured once has no interval. JAX's loop, on one core, is quicker than ours: it keeps its sums in "
        "float32, clips nothing and draws no noise. With five local steps ours draws noise five times, while a loop "
        "over clients has a client's rows in a near cache for all five. FedJAX and Flower pay by the round more "
        "than by the step: of Flower's rounds, one and five steps cannot be told apart. Its simulation is that "
        "of the newest release that could be installed here, 1.41.0.\n"
    )
    epm = numbers.get("fedepm")
    if epm:
        yield (
            f"FedEPM, 12 local steps: its paper's Table I gives {epm['paper ms']:.1f} ms of local computation, "
            f"{epm['paper passes']:.1f} of its own gradient passes; ours takes {epm['ours ms']:.1f} ms, server, ledger "
            f"and noise included, {epm['our passes']:.1f} of our passes.\n"
        )
    yield "What the peers do that this problem does not need:\n"
    yield from (f"- {name}: {peer['more']}." for name, peer in numbers["peers"].items() if "more" in peer)
    yield (
        "\nThey are built for models of any shape, and pay for it in each step of each client; this library is built "
        "for linear models, where all clients are one pass over one array.\n"
    )


def _over_ours(some: Numbers | None, target: float) -> str:
    if some is None:
        return "–"
    return _least(some["over ours"], target) + (_within(some, "{:.1f}") if some["turns"] > 1 else "")


def _start(numbers: Numbers) -> Iterator[str]:
    yield "## 5. Start\n"
    rows: list[tuple[Any, ...]] = [("", "wall s, quickest", "CPU s", "target")]
    for name, key, target in (
        ("`python -c pass`", "python", None), ("`import numpy`", "numpy", None), ("`import sottovoce`", "import", 0.4),
        ("`sottovoce --help`", "help", 0.5), ("`sottovoce demo`, nothing compiled before", "demo", 5.0),
        ("`import numba`", "numba", None),
    ):  # fmt: skip
        if key not in numbers:
            continue
        one = numbers[key]
        wall = one["least wall"]
        shown = f"{wall:.2f}" if target is None else _most(wall, target)
        rows.append((name, shown, _cpu(one), target or ""))
    for name, key in (
        ("kernel on a machine, float64", "kernel float64"), ("kernel on a machine, float32", "kernel float32"),
        ("run with proven noise on a machine, float32, objective recorded", "run"),
    ):  # fmt: skip
        first, cached = numbers[f"first {key}"], numbers[f"cached {key}"]
        beyond = first["cpu"] - numbers["numba"]["cpu"]
        missed = " **missed**" if key != "run" and beyond > 2.0 else ""
        aim = "" if key == "run" else "2 s of CPU beyond Numba's import"
        rows.append((f"first {name}", f"{first['least wall']:.2f}", _cpu(first) + missed, aim))
        rows.append(("the same from the disk cache", f"{cached['least wall']:.2f}", _cpu(cached), ""))
    yield from _table(*rows)
    yield (
        "CPU seconds are medians. A kernel is the pass over rows; a run compiles its noise, its hashes and the margins "
        "of the objective too.\n"
    )


def _cpu(one: Numbers) -> str:
    """CPU seconds with their interval."""
    return f"{one['cpu']:.2f}{_within(one['cpu within'])}"


def _montecarlo(numbers: Numbers) -> Iterator[str]:
    yield "## 6. Monte Carlo\n"
    yield "Many runs at once through the runs axis, against a loop over seeds (target: 20 times).\n"
    plt, audit = numbers["fed-plt"], numbers["audit"]
    rows: list[tuple[Any, ...]] = [("", "ms a run, loop", "runs axis, NumPy", "runs axis, kernel", "gain, best")]
    for name, one in (
        (f"Fed-PLT's problem, {plt['seeds']} seeds, {plt['rounds']} rounds", plt),
        (f"audit, {audit['plays']:,} plays of 10 rounds, {audit['at once']} at once", audit),
    ):
        gain = max(one["numpy gain"], one["kernel gain"])
        ms = [f"{one[key]:.3f}" for key in ("loop ms", "numpy ms", "kernel ms")]
        rows.append((name, *ms, _least(gain, 20)))
    yield from _table(*rows)


def _machines(numbers: Numbers) -> Iterator[str]:
    yield "## 7. Between machines\n"
    yield (
        "Wall seconds of a round on loopback with TLS, keys and a database, all processes on this machine: our nodes "
        "(`sottovoce node start`), DP-ADMM with secure noise and ledgers on disk, beside Flower's own FedAvg on "
        "SuperNodes without privacy, runs in turn. The ratio is the median over turns. Memory is a node's proportional "
        "set size beyond its rows.\n"
    )
    rows: list[tuple[Any, ...]] = [
        ("nodes x coordinates", "ours, s", "Flower's, s", "ratio", "target", "MB beyond rows (target 160)")
    ]
    for name, target in (("small", 0.25), ("large", 0.7)):
        one = numbers[name]
        shown = [f"{min(one[side]):.2f} to {max(one[side]):.2f}" for side in ("ours", "theirs")]
        size = f"{one['nodes']} x {one['columns']:,}".replace(",", " ")
        held = _most(one["megabytes beyond rows"], 160, "{:.0f}")
        rows.append((size, *shown, _most(one["ratio"], target), target, held))
    yield from _table(*rows)
    if "note" in numbers:
        yield numbers["note"] + "\n"
    many = numbers.get("many")
    if many is None:
        return
    yield (
        f"{many['nodes']} nodes finish {many['rounds']} rounds, with at least {many['least answers']} answers in each, "
        f"{many['seconds']:.1f} s a round, {many['megabytes']:.0f} MB a node.\n"
    )


def _columns(numbers: Numbers) -> Iterator[str]:
    yield "## 8. Split columns between machines\n"
    yield (
        "Masked moments over three owners, another owner dealing, secure noise: real nodes on loopback with TLS, all "
        "processes on this machine. Seconds are those of the one round, with everything before it: keys, masks, masked "
        "tables in chunks, signed digests. A node has 40 columns (the holder of the labels one more), as 64-bit "
        "numbers; memory is the most that one held.\n"
    )
    rows: list[tuple[Any, ...]] = [
        ("samples x columns", "s", "with Flower's start, s", "CPU s of a node", "MB of a node")
    ]
    for name in ("half", "whole"):
        one = numbers[name]
        size = f"{one['samples']:,} x {one['columns']}".replace(",", " ")
        shown = [f"{one[key]:.1f}" for key in ("seconds", "seconds with start", "CPU seconds of a node")]
        rows.append((size, *shown, f"{one['megabytes of a node']:.0f}"))
    yield from _table(*rows)


def _sums(numbers: Numbers) -> Iterator[str]:
    yield "## 9. Only sums are seen, between machines\n"
    yield (
        f"Wall seconds of a round of {numbers['nodes']} nodes x {numbers['rows']} rows x {numbers['columns']} columns, "
        "noisy gradient descent with secure noise and ledgers on disk: the server sees sums only (all nodes in every "
        "sum, a third may collude), or every message. The same nodes and SuperLink on loopback, runs of "
        f"{numbers['rounds']} rounds in turn, medians over rounds. Set-up is all that came before the first round with "
        "sums, and the ratio spreads it over the rounds. A round with sums has two exchanges instead of one.\n"
    )
    shown = [[f"{seconds:.1f}" for seconds in numbers[name]] for name in ("with sums", "set-up", "without")]
    ratios = [f"{ratio:.2f}" for ratio in numbers["ratios"]]
    yield from _table(("turn", "sums, s", "its set-up, s", "every message, s", "ratio"), *(
        (number, *turn) for number, turn in enumerate(zip(*shown, ratios, strict=True), 1)
    ))  # fmt: skip
    yield f"Ratio, median over turns: {_most(numbers['ratio'], 2.5)} (target 2.5). {numbers.get('note', '')}\n"


def _draw(numbers: Numbers, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mine = {name: (numbers["ours"]["1"][name]["ms"], numbers["ours"]["5"][name]["ms"]) for name in numbers["ours"]["1"]}
    theirs = {
        name: (peer["1"]["ms"], peer.get("5", {}).get("ms")) for name, peer in numbers["peers"].items() if "1" in peer
    }
    bars = sorted({**mine, **theirs}.items(), key=lambda bar: bar[1][0], reverse=True)
    figure = Figure(figsize=(7.5, 0.42 * len(bars) + 1.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, (name, (one, five)) in enumerate(bars):
        colour = "#0072B2" if name.startswith("sottovoce") else "0.65"
        axes.barh(place + 0.18, one, height=0.34, color=colour)
        if five is not None:
            axes.barh(place - 0.18, five, height=0.34, color=colour, alpha=0.55)
        axes.text(one * 1.08, place + 0.18, f"{one:.3g}", va="center", fontsize=7)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.set(
        xscale="log", xlabel="CPU milliseconds a round, 100 clients x 400 x 104 (upper bar: 1 local step; lower: 5)"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, format="png", metadata={"Software": None})
