"""What `sim:` is made of: how a simulated model reads, forgets and answers."""
