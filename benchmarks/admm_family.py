"""Table II of the DP-ADMM paper: time of 100 iterations of ADMM, PVP, DVP and DP-ADMM, as ratios in one run.

    .venv/bin/python benchmarks/admm_family.py            # Adult, 100 clients: a few minutes
    .venv/bin/python benchmarks/admm_family.py --rounds 5

The paper (MATLAB, eps = 0.1): ADMM 67.2 s, PVP 79.0 s, DVP 69.9 s, DP-ADMM 5.2 s, so DP-ADMM takes about a tenth.
"""

import argparse
import time

import sottovoce as sv
from sottovoce.algorithms import ADMM, DVP, PVP
from sottovoce.problems import datasets, partition


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    adult = datasets.adult()
    X, y, _, _ = datasets.split(adult.X, adult.y, 5222, seed=0)
    federation = sv.Federation.from_arrays(X, y, partition.iid(len(y), 100, seed=0), row_bound=adult.row_bound)
    goal = sv.Objective(sv.Logistic(), penalty=sv.L2(1e-6))
    published = sv.Published(epsilon=0.1, delta=1e-4)

    def seconds(algorithm, privacy, times: int) -> float:
        begun = time.perf_counter()
        sv.train(algorithm, federation, goal, rounds=times, privacy=privacy, seed=0, record_every=times)
        return time.perf_counter() - begun

    dp_admm = sv.DPADMM(rho=0.1, c_w=89.0)
    seconds(dp_admm, published, 1)  # compile
    taken = {
        "dp-admm": seconds(dp_admm, published, rounds),
        "admm": seconds(ADMM(rho=0.1), sv.NoPrivacy(), rounds),
        "pvp": seconds(PVP(rho=0.1), published, rounds),
        "dvp": seconds(DVP(rho=0.1), published, rounds),
    }
    print(f"{rounds} rounds, Adult, 100 clients x 400 rows x 104 features, eps = 0.1 per round")
    for name, value in taken.items():
        print(f"{name:8s} {value:8.2f} s   {value / taken['dp-admm']:7.1f} x dp-admm")


if __name__ == "__main__":
    main()
