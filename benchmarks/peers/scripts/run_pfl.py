"""pfl-research: `FederatedAveraging` on its `SimulatedBackend`, one process."""

import warnings

warnings.filterwarnings("ignore")
import numpy as np  # noqa: E402
import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from problem import LAM, STEP, main  # noqa: E402


# user: from here
class Logistic(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(features))

    def loss(self, x, y, is_eval=False):
        return torch.nn.functional.softplus(-y * (x @ self.w)).mean() + LAM / 2 * self.w @ self.w

    def metrics(self, x, y):
        return {}


def run(X, y, steps, rounds):
    torch.set_num_threads(1)
    users = {k: [torch.tensor(X[k]), torch.tensor(y[k])] for k in range(len(X))}
    sets = FederatedDataset.from_slices(users, get_user_sampler("minimize_reuse", list(users)))
    module = Logistic(X.shape[2])
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=len(X),
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=sets, val_data=None),
        model=model,
        model_train_params=NNTrainHyperParams(local_num_epochs=steps, local_learning_rate=STEP, local_batch_size=None),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        send_metrics_to_platform=False,
    )
    return module.w.detach().numpy().astype(np.float64)


# to here
if __name__ == "__main__":
    main(run)
