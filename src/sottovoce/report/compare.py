"""`sottovoce compare`: several run files over the same seeds, and how sure their differences are.

All seeds of a file are trained at once (the runs axis). What varies from seed to seed is noise, batches, who takes
part and what algorithms draw; rows, split and partition stay as the file's [data] says. A method that can stop early
stops once all seeds would.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

from sottovoce.core import check
from sottovoce.core.plain import Json, Progress
from sottovoce.experiment import run_file, store, whole_files
from sottovoce.experiment.publishable import private_columns
from sottovoce.experiment.repetitions import LEVEL, Repetitions, interval, paired
from sottovoce.experiment.run_file import Experiment
from sottovoce.report import figures, page
from sottovoce.report.numbers import MEASURES, METRICS
from sottovoce.report.runs import flat_settings

FIGURE, PAGE, NUMBERS = "comparison.png", "report.html", "comparison.json"
_SUMMARY = ("method", "rounds", "stopped", "privacy", "epsilon", "delta", "unit", "observer", "bytes_up", "bytes_down")


def run(files: Sequence[Path], path: Path, seeds: int, seed: int, progress: Progress) -> Json:
    """Train, compare, and save everything under `path`, all of it or nothing; what `comparison.json` holds."""
    check.require(len(files) >= 2, "compare", "needs at least two run files", len(files))
    check.require(seeds >= 2, "compare", "seeds must be >= 2: one value has no spread", seeds)
    experiments = {name: _load(file, seeds, seed) for name, file in zip(_names(files), files, strict=True)}
    with whole_files.new_folder(path) as folder:
        groups = [_trained(name, each, folder / name, progress) for name, each in experiments.items()]
        comparison = compared(groups)
        for entry, file in zip(comparison["runs"], files, strict=True):
            entry["file"] = file.name
        figure = figures.differences(groups)
        made = {NUMBERS: whole_files.json_bytes(comparison), PAGE: page.page(groups).encode()}
        whole_files.write_files(folder, made | ({} if figure is None else {FIGURE: figure}))
    return comparison


def _trained(name: str, experiment: Experiment, folder: Path, progress: Progress) -> Repetitions:
    """Train all seeds of a run file, and save them in `folder`."""
    rounds = experiment.settings.rounds
    progress(name, 0, rounds)
    result = experiment.train(after_round=lambda checkpoint: progress(name, checkpoint.k, rounds))
    return Repetitions(name, (result,), (store.save(result, folder),))


def compared(groups: Sequence[Repetitions]) -> Json:
    """Means with intervals at the end of training, and differences to the first, paired by seed; plain values."""
    first, runs = groups[0], []
    for group in groups:
        summary = store.summary(group.first)
        measures = {}
        for column in (measure.column for measure in MEASURES if group.has(measure.column)):
            values = group.last(column)
            difference = paired(first, group, column) if group is not first else None
            measures[column] = interval(values).plain() | {
                "released": column not in private_columns(group.first),
                "values": values.tolist(),
                "difference": difference.plain() if difference is not None else None,
            }
        metrics = {each.column: summary[each.column] for each in METRICS if each.column in summary}
        kept = {key: summary.get(key) for key in _SUMMARY}
        runs.append({"name": group.name} | kept | {"measures": measures, "metrics": metrics})
    return {
        "seeds": len(first.keys),
        "seed": first.first.config["run"]["seed"],
        "level": LEVEL,
        "paired_with": first.name,
        "differ_in": differ_in(groups),
        "runs": runs,
    }


def differ_in(groups: Sequence[Repetitions]) -> dict[str, list[object]]:
    """The settings that are not the same in all: one value per run, None where it has no such setting."""
    settings = [flat_settings(group.first.config) for group in groups]
    names = dict.fromkeys(name for of_run in settings for name in of_run if name != "run.name")
    values = {name: [of_run.get(name) for of_run in settings] for name in names}
    return {name: of_runs for name, of_runs in values.items() if any(value != of_runs[0] for value in of_runs)}


def _load(file: Path, seeds: int, seed: int) -> Experiment:
    loaded = run_file.load(file, runs=seeds, seed=seed)
    ledgers = loaded.settings.ledgers
    rule = "a comparison must not spend budgets that last; leave ledgers out"
    check.require(not ledgers, f"{file.name}, [run]", rule, ledgers)
    return loaded


def _names(files: Sequence[Path]) -> list[str]:
    """Each file's own name, with a number where that is taken: they name folders."""
    names: list[str] = []
    for file in files:
        stem = run_file.folder_name(file.stem) or "run"
        numbered = (f"{stem}-{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([stem], numbered) if name not in names))
    return names
