"""What exact discrete Gaussian noise costs: this library's sampler, its bits, the operating system's bits and OpenDP.

    .venv/bin/python -m benchmarks.noise_cost

CPU time, each task in turn, so that a busy machine slows all alike.
"""

import os

import numpy as np

from benchmarks.clock import side_by_side
from sottovoce.core.random.bits import SeededBits, SystemBits
from sottovoce.privacy import discrete_noise
from sottovoce.privacy.discrete_gaussian import draw, draw_rows

SIGMA, COUNT, CLIENTS, COORDINATES = 2.0**20, 10**6, 100, 104
FEWER = 100  # OpenDP draws a hundredth of the numbers


def main() -> None:
    draw(SIGMA, 1, SystemBits())
    secret, zeros = SystemBits(), np.zeros(COUNT // FEWER, np.int64)
    tasks = {
        "draw": lambda: draw(SIGMA, COUNT, secret),
        "bits": lambda: secret.words(3 * COUNT),
        "urandom": lambda: os.urandom(24 * COUNT),
        "opendp": lambda: discrete_noise.noised("gaussian", SIGMA, zeros),
        "answer": lambda: draw(SIGMA, COORDINATES, secret),
        "clients": lambda: draw_rows(SIGMA, COORDINATES, [SeededBits(0, f"client {i}") for i in range(CLIENTS)]),
    }
    turns = side_by_side(tasks, 7)
    opendp = turns.ms("opendp") * FEWER
    print(f"{COUNT:,} numbers, sigma = 2^20: {turns.ms('draw'):.0f} ms   (target: under 100 ms)")
    print(f"  their random bits: {turns.ms('bits'):.0f} ms by ChaCha20, {turns.ms('urandom'):.0f} ms by os.urandom")
    print(f"  OpenDP: {opendp:.0f} ms, {turns.ratio('opendp', 'draw') * FEWER:.0f} times as long")
    print(f"one client's {COORDINATES} numbers: {turns.ms('answer'):.3f} ms")
    print(f"a simulator's {CLIENTS} clients x {COORDINATES} seeded numbers: {turns.ms('clients'):.2f} ms")


if __name__ == "__main__":
    main()
