"""Floor 6: the program and the commands of the core. The only package that catches errors and exits."""
