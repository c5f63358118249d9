"""APPFL: clients and server in one process; FedAvg, or with --iiadmm its ADMM. Its memory saver, on by default, is off:

with it a round takes minutes.
"""

import logging
import os
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ["WANDB_MODE"] = "disabled"
import torch  # noqa: E402
import torchvision_ops  # noqa: E402, F401
from appfl.agent import ClientAgent, ServerAgent  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from problem import LAM, STEP, main  # noqa: E402


# user: from here
def run(X, y, steps, rounds):
    torch.set_num_threads(1)
    logs, clients, plain = tempfile.mkdtemp(), len(X), {"optimize_memory": False}
    training = {
        "trainer": "IIADMMTrainer" if IIADMM else "VanillaTrainer",
        "mode": "step",
        "num_local_steps": steps,
        "optim": "SGD",
        "optim_args": {"lr": STEP, "weight_decay": LAM},
        "train_batch_size": X.shape[1],
        "loss_fn_path": "appfl_parts.py",
        "loss_fn_name": "Loss",
        "metric_path": "appfl_parts.py",
        "metric_name": "no_metric",
        "logging_output_dirname": logs,
        "logging_output_filename": "log",
        "init_penalty": 5.0,
        "residual_balancing": {"res_on": False},
        **plain,
    }
    shared = {"train_configs": training, "model_configs": {"model_path": "appfl_parts.py", "model_name": "Logistic"}}
    server = ServerAgent(
        OmegaConf.create(
            {
                "client_configs": shared | plain,
                "server_configs": {
                    "num_clients": clients,
                    "num_global_epochs": rounds,
                    "scheduler": "SyncScheduler",
                    "scheduler_kwargs": {"num_clients": clients, "same_init_model": True, **plain},
                    "aggregator": "IIADMMAggregator" if IIADMM else "FedAvgAggregator",
                    "aggregator_kwargs": {"client_weights_mode": "equal", "num_clients": clients, **plain},
                    "device": "cpu",
                    "logging_output_dirname": logs,
                    "logging_output_filename": "log",
                    **plain,
                },
            }
        )
    )
    agents = []
    for client in range(clients):
        rows = {"dataset_path": "appfl_parts.py", "dataset_name": "rows_of", "dataset_kwargs": {"client": client}}
        log = {"logging_output_dirname": logs, "logging_output_filename": "log"}
        own = {"client_id": f"client{client}", "data_configs": rows, "train_configs": log, **plain}
        agents.append(ClientAgent(OmegaConf.create(own)))
    for agent in agents:
        agent.load_config(server.get_client_configs())
        agent.load_parameters(server.get_parameters(serial_run=True))
        if IIADMM:
            agent.trainer.set_weight(1 / clients)
        server.set_sample_size(client_id=agent.get_id(), sample_size=agent.get_sample_size())
    while not server.training_finished():
        answers = []
        for agent in agents:
            agent.train()
            update = agent.get_parameters()
            update, extra = update if isinstance(update, tuple) else (update, {})
            answers.append(server.global_update(agent.get_id(), update, blocking=False, **extra))
        for agent, answer in zip(agents, answers, strict=True):
            new = answer.result() if hasattr(answer, "result") else answer
            agent.load_parameters(new[0] if isinstance(new, tuple) else new)
    return server.get_parameters(serial_run=True)["w"].detach().numpy()


# to here
if __name__ == "__main__":
    IIADMM = "--iiadmm" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--iiadmm"]
    logging.disable(logging.CRITICAL)
    main(run)
