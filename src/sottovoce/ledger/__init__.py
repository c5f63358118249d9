"""Privacy budgets: what each owner has spent, in memory or in a file that outlives the run."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
