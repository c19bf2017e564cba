"""Pre-trains and fine-tunes ALBERT: the Python API and the console script."""
