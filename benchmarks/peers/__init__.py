"""Other people's libraries on the same problem, each in an environment of its own."""
