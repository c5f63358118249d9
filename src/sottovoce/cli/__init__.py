"""The command line, one file per command."""

import os

from sottovoce.core.lazy import modules_of

# NumPy's linear algebra reads this when it is loaded. Its threads otherwise keep a core busy for a while after they
# were used, in case there is more to do: as training asks them a little every few rounds, that would be all the time.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

__getattr__ = modules_of(__name__)
