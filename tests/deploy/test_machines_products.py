"""Real processes on loopback: owners of split columns who multiply between machines."""

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from tests.machines import started
from tests.multiplied import NAMES, deployment_of, simulated, write_owners


@pytest.mark.parametrize("n", [2, 3], ids=["the coordinator deals", "another owner deals"])
def test_real_nodes_have_the_simulators_numbers(tmp_path: Path, n: int) -> None:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    files, made = write_owners(tmp_path / "rows", n), deployment_of(n, deadline=120, wait=500)
    with started(tmp_path / "machines", dict(zip(NAMES[:n], files, strict=True))) as machines:
        said = machines.run(machines.app("products", made)).end()
        got, receipts = machines.result("products"), machines.receipts()
    same = simulated(made, files)
    assert np.array_equal(got.model, same.model), said
    assert np.array_equal(got.sums, same.sums), said  # type: ignore[attr-defined]
    assert receipts == [1] * n
