"""The papers' tables and figures, made again with this library: `sottovoce reproduce`.

The file named after a paper only states its experiments: what is run, what the paper says, and by which rule of
`verdicts.py` that is decided. What its trials are is in `NAME_runs.py`. `experiment.py` says what an experiment is,
`runner.py` runs its cells, `figure.py` draws, `page.py` writes the table of claims.
"""
