"""DeepSpeed: its configuration, its engine and the project's LAMB. No other package uses DeepSpeed's internals.

protocol          the part of the engine that other packages use
build             builds an engine from a model and a DeepSpeed JSON
step              one step, its failure, the learning rate, and metrics of the last step
state             reads and sets what a checkpoint holds of an engine
checksums         checksums of weights, moments and batches, computed on the device
config            reads the DeepSpeed JSON and fits it to ranks and hardware
config_keys       checks its keys
config_values     checks its values
optimizers        the optimizers that a JSON can name
lamb              LAMB, the optimizer
slice_map         LAMB's record of which elements of its buffers belong to which tensor; `zero_layout` fills it
parameter_groups  which tensors are decayed and have a trust ratio
zero_layout       finds where each tensor's elements lie in DeepSpeed's buffers, and tells LAMB
machine/          this rank's accelerator and rank, and what DeepSpeed compiles for it
workarounds       workarounds for DeepSpeed bugs, and rejected settings
"""
