"""fluke: `FedAVG`, evaluation off."""

import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torchvision_ops  # noqa: E402, F401
from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # noqa: E402
from problem import LAM, STEP, main  # noqa: E402


# user: from here
class Logistic(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return x @ self.w


def run(X, y, steps, rounds):
    torch.set_num_threads(1)
    FlukeENV().set_seed(0)
    FlukeENV().set_device("cpu")
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    loaders = [
        FastDataLoader(torch.tensor(Xk), torch.tensor(yk), num_labels=2, batch_size=len(yk), shuffle=False)
        for Xk, yk in zip(X, y, strict=True)
    ]
    settings = DDict(
        client=DDict(
            batch_size=0,
            local_epochs=steps,
            loss=torch.nn.SoftMarginLoss,
            optimizer=DDict(name=torch.optim.SGD, lr=STEP, weight_decay=LAM),
            scheduler=DDict(step_size=10**9, gamma=1.0),
        ),
        server=DDict(weighted=False),
        model=Logistic(X.shape[2]),
    )
    splitter = DataSplitter(DummyDataContainer(loaders, [None] * len(X), None, 2))
    algorithm = FedAVG(len(X), splitter, settings)
    algorithm.run(rounds, 1.0)
    return algorithm.server.model.w.detach().numpy()


# to here
if __name__ == "__main__":
    main(run)
