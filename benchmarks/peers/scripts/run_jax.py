"""JAX: the clients under `vmap`, local steps in a `scan`, a round compiled as one; one thread, like all others."""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import functools

import jax
import jax.numpy as jnp
import numpy as np
from problem import LAM, STEP, main

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the flags alone leave it several threads


# user: from here
@functools.partial(jax.jit, static_argnames="steps")
def round_of_all(w, X, y, steps):
    def client(Xk, yk):
        def step(v, _):
            slope = -yk * jax.nn.sigmoid(-yk * (Xk @ v))
            return v - STEP * (slope @ Xk / len(yk) + LAM * v), None

        return jax.lax.scan(step, w, length=steps)[0]

    return jax.vmap(client)(X, y).mean(axis=0)


def run(X, y, steps, rounds):
    X, y, w = jnp.asarray(X), jnp.asarray(y), jnp.zeros(X.shape[2])
    for _ in range(rounds):
        w = round_of_all(w, X, y, steps)
    return np.asarray(w)


# to here
if __name__ == "__main__":
    main(run)
