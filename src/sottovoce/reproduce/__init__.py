"""The papers' tables and figures, made again with this library: `sottovoce reproduce`.

One file per group of figures only states its experiments; `experiment.py` says what an experiment is, `runner.py`
runs its cells, `figure.py` draws, `page.py` writes the table of claims.
"""
