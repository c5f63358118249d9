"""Measure how fast the library is, section by section, and write the page:  python -m benchmarks [SECTION ...]

Each section writes benchmarks/results/SECTION.json; the page, docs/speed.md with its figure, is made from these. A
section that is there is not measured again unless it is named. Ratios are taken between tasks that ran in turn.

`--campaign` measures anew all that needs no servers (limit, loop, methods, peers, start, montecarlo), in one go: peers
with as few rounds as will do. Interrupted, the same command goes on where it stopped.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence

for _name in ("OMP", "OPENBLAS", "MKL"):  # before NumPy is loaded: one thread, unless a section says otherwise
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")

# Minutes that each took where it has not been measured before.
SECTIONS = {
    "loop": 3.0, "limit": 1.5, "start": 1.0, "peers": 9.0, "methods": 5.0, "montecarlo": 1.0, "machines": 15.0,
    "columns": 5.0, "sums": 15.0,
}  # fmt: skip
CAMPAIGN = ("loop", "limit", "start", "peers", "methods", "montecarlo")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}, page; all that are missing by default")
    parser.add_argument("--quick", action="store_true", help="small sizes and few turns: does it work?")
    parser.add_argument("--again", action="store_true", help="measure everything anew")
    parser.add_argument("--campaign", action="store_true", help="measure anew all that needs no servers")
    parser.add_argument("--announce", action="store_true", help="only say what it would measure, and how long it takes")
    parser.add_argument("--only", nargs="*", default=(), metavar="PEER", help="of the peers, these; 'ours' is us")
    options = parser.parse_args()
    unknown = set(options.section) - {*SECTIONS, "page"}
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)} and page")

    from benchmarks import clock, page

    docs = page.DOCS
    if options.quick:
        clock.RESULTS = docs = clock.RESULTS / "quick"  # numbers of small sizes must not pass for the others
    if options.campaign:
        campaign(options.quick, options.announce)
    else:
        named = [name for name in options.section if name != "page"]
        wanted = [name for name in SECTIONS if options.again or is_missing(name)]
        todo = named if options.section else wanted
        announce(todo, options.quick, options.only, anew=options.again)
        for name in [] if options.announce else todo:
            measure(name, options.quick, options.only, anew=options.again)
    if not options.announce:
        page.write(docs)


def is_missing(name: str) -> bool:
    """Whether a section, or of the peers at least one, has not been measured."""
    from benchmarks import clock
    from benchmarks.peers import section

    return clock.kept(name) is None or (name == "peers" and bool(section.left()))


def campaign(quick: bool, only_say: bool) -> None:
    """Measure the sections of the campaign that it has not measured yet; a file keeps count until all are done."""
    from benchmarks import clock

    clock.RESULTS.mkdir(parents=True, exist_ok=True)
    state = clock.RESULTS / "campaign.json"
    done: list[str] = json.loads(state.read_text()) if state.exists() else []
    todo = [name for name in CAMPAIGN if name not in done]
    announce(todo, quick, anew="peers begun" not in done)
    if only_say:
        return
    for name in todo:
        begun = "peers begun" in done
        if name == "peers" and not begun:
            done.append("peers begun")
            state.write_text(json.dumps(done))
        measure(name, quick, (), anew=not begun)
        done.append(name)
        state.write_text(json.dumps(done))
    state.unlink()


def announce(todo: Sequence[str], quick: bool, only: Sequence[str] = (), anew: bool = False) -> None:
    """Say what will be measured, and how long it will take: as long as it took the last time."""
    from benchmarks.peers import section
    from benchmarks.peers.environments import ENVIRONMENTS

    peers = section.left(only, anew) if "peers" in todo else []
    minutes = {name: last_minutes(name) for name in todo}
    if "peers" in todo and not anew:
        minutes["peers"] = SECTIONS["peers"] * len(peers) / len(section.PEERS)
    shown = ", ".join(f"{name} {value:.0f}" if value >= 1 else f"{name} below 1" for name, value in minutes.items())
    if not todo:
        print("Nothing is left to measure; --again measures everything anew.", flush=True)
    elif quick:
        print(f"To measure: {', '.join(todo)}; a few minutes, with small sizes.", flush=True)
    else:
        print(f"To measure, in minutes: {shown}; together about {sum(minutes.values()):.0f}.", flush=True)
    new = {peer.environment for peer in peers if not ENVIRONMENTS[peer.environment].interpreter.exists()}
    if new:
        most = f"all {len(ENVIRONMENTS)} there are take about 20 minutes more, and 6 GB"
        print(f"Not installed yet, each in an environment of its own: {', '.join(sorted(new))}; {most}.", flush=True)


def last_minutes(name: str) -> float:
    from benchmarks import clock

    return ((clock.kept(name) or {}).get("about", {}).get("seconds") or 60 * SECTIONS[name]) / 60


def measure(name: str, quick: bool, only: list[str] | tuple[str, ...], anew: bool) -> None:
    from importlib import import_module

    from benchmarks import clock

    begun = time.perf_counter()
    if name == "peers":
        if anew:
            (clock.RESULTS / "peers.json").unlink(missing_ok=True)
        numbers = import_module("benchmarks.peers.section").run(quick, only)
        before = 0.0 if anew else numbers.get("about", {}).get("seconds") or 0.0
        clock.keep(name, numbers, before + time.perf_counter() - begun)
    else:
        numbers = import_module(f"benchmarks.{name}").run(quick)
        clock.keep(name, numbers, time.perf_counter() - begun)
    print(f"{name}: {(time.perf_counter() - begun) / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
