"""Floor 4: words in, words out. The only place that catches, prints and exits."""
