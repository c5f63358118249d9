"""One-line privacy bugs, planted one at a time: do the tests and `sottovoce audit` catch them? See `make mutants`."""
