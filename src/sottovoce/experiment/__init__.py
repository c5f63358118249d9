"""From a run file to a trained model on this machine, and the folder that it is saved in."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
