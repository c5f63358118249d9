"""FedJAX: `fed_avg.federated_averaging` with its compiled back end."""

import warnings

warnings.filterwarnings("ignore")
import fedjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from problem import LAM, STEP, main  # noqa: E402


# user: from here
def run(X, y, steps, rounds):
    def loss(w, batch, rng):
        margins = batch["y"] * (batch["x"] @ w)
        return jnp.mean(jnp.logaddexp(0.0, -margins)) + LAM / 2 * w @ w

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(STEP),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=X.shape[1], num_epochs=steps),
    )
    sets = [fedjax.ClientDataset({"x": Xk, "y": yk}) for Xk, yk in zip(X, y, strict=True)]
    state = algorithm.init(jnp.zeros(X.shape[2]))
    for round_ in range(rounds):
        keys = jax.random.split(jax.random.PRNGKey(round_), len(sets))
        state, _ = algorithm.apply(state, [(b"%d" % k, one, keys[k]) for k, one in enumerate(sets)])
    return np.asarray(state.params)


# to here
if __name__ == "__main__":
    main(run)
