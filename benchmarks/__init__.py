"""Side-by-side measurements, each a command of its own; what they found lies in results/."""
