"""Floor 5: the commands. The only package that catches errors, prints and exits."""
