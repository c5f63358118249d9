"""Tables, figures and pages about finished runs."""

from sottovoce.core.lazy import modules_of

__getattr__ = modules_of(__name__)
