"""Real processes on loopback: owners of split columns who multiply between machines."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy.flower.app_folder import write
from sottovoce.experiment.tables import to_toml
from tests.machines import started
from tests.multiplied import NAMES, SAMPLES, deployment_of, new_samples, simulated, write_owners


@pytest.mark.parametrize("n", [2, 3], ids=["the coordinator deals", "another owner deals"])
def test_real_nodes_have_the_simulators_numbers(tmp_path: Path, n: int) -> None:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    files, made = write_owners(tmp_path / "rows", n, scores_per_day=3), deployment_of(n, deadline=120, wait=500)
    with started(tmp_path / "machines", dict(zip(NAMES[:n], files, strict=True))) as machines:
        said = machines.run(machines.app("products", made)).end()
        ids = [str(SAMPLES + each) for each in (5, 0, 11)]
        (tmp_path / "ids.txt").write_text("\n".join(ids))
        runs = machines.folder / "runs" / "products"
        asked = {"ids": str(tmp_path / "ids.txt"), "predictions": str(tmp_path / "predictions.csv")}
        write(machines.folder / "predict", to_toml(made.tables), runs, experiment=machines.experiment, **asked)
        predicted = machines.run(machines.folder / "predict").end()
        got, receipts = machines.result("products"), machines.receipts()
    same = simulated(made, files)
    assert np.array_equal(got.model, same.model), said
    assert np.array_equal(got.sums, same.sums), said  # type: ignore[attr-defined]
    assert receipts == [1] * n, "scores are charged to nobody"
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    scores = got.scores([part[[5, 0, 11]] for part in new_samples(n)])
    assert [row["id"] for row in rows] == ids, predicted
    assert np.abs([float(row["probability of 1"]) for row in rows] - 1 / (1 + np.exp(-scores))).max() < n * 2.0**-33
