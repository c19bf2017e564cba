"""What a GPU can do with this project, in parts of less than ten minutes: `make gpu`, docs/gpu.md.

parts    the parts: tests, and those below
runs     runs of the presets, their profile, and on more GPUs
speed    a training step beside the matrix product and `transformers`, and the gain of each feature
profiled pre-training with three steps under a profiler
place    the device, the size and the directory of the parts
page     the page of all parts
"""
