"""Measure how fast the library is, section by section, and write the page:  python -m benchmarks [SECTION ...]

Each section writes benchmarks/results/SECTION.json; the page, docs/speed.md with its figure, is made from these. A
section that is there is not measured again unless it is named. Ratios are taken between tasks that ran in turn.
"""

import argparse
import os

for _name in ("OMP", "OPENBLAS", "MKL"):  # before NumPy is loaded: one thread, unless a section says otherwise
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")

SECTIONS = ("limit", "methods", "peers", "start", "montecarlo", "machines", "columns", "sums")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}, page; all that are missing by default")
    parser.add_argument("--quick", action="store_true", help="small sizes and few turns: does it work?")
    parser.add_argument("--again", action="store_true", help="measure everything anew")
    parser.add_argument("--only", nargs="*", default=(), metavar="PEER", help="of the peers, these; 'ours' is us")
    options = parser.parse_args()
    unknown = set(options.section) - {*SECTIONS, "page"}
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)} and page")

    from benchmarks import clock, columns, limit, machines, methods, montecarlo, page, start, sums
    from benchmarks.peers import section as peers

    docs = page.DOCS
    if options.quick:
        clock.RESULTS = docs = clock.RESULTS / "quick"  # numbers of small sizes must not pass for the others
    modules = {"limit": limit, "methods": methods, "start": start, "montecarlo": montecarlo, "machines": machines}
    modules |= {"columns": columns, "sums": sums}
    for name in options.section or SECTIONS:
        if name == "page" or not (options.section or options.again or clock.kept(name) is None or name == "peers"):
            continue
        if name == "peers":
            if options.again:
                (clock.RESULTS / "peers.json").unlink(missing_ok=True)
            peers.run(options.quick, options.only)
        else:
            clock.keep(name, modules[name].run(options.quick))
    page.write(docs)


if __name__ == "__main__":
    main()
