"""What a GPU can do with this project, in parts of less than ten minutes: `make gpu`, docs/gpu.md.

parts    the parts, and where each one works
place    a device, a size and a directory
text     shards of made-up text
checks   runs the tests marked `gpu`
speed    a training step beside the matrix product and `transformers`, and the gain of each feature
memory   the memory of a step beside the plan
several  bandwidth between GPUs, and training on more of them
demo     the run of `make demo`, on the GPU and on the processor
page     the page of all parts
"""
