"""The papers' tables and figures, made again with this library: `sottovoce reproduce`.

The file named after a paper has its trials and its experiments: what is run, what the paper says, and by which rule of
`verdicts.py` that is decided. `experiment.py` says what an experiment is, `trials.py` has what papers share,
`runner.py` runs the cells, `figure.py` draws, `page.py` writes the table of claims.
"""
