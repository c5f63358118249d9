"""One file per command. Heavy modules are imported inside the functions: `sottovoce --help` answers at once."""
