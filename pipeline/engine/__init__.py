"""DeepSpeed: its configuration, its engine and the project's LAMB. No other package uses DeepSpeed's internals.

engine_state      makes an engine and its steps, reads its metrics, reads and sets what a checkpoint holds of it
engine_config     a checked DeepSpeed JSON for a known number of ranks
deepspeed_config  reads and checks the DeepSpeed JSON, and fits it to ranks and hardware
optimizers        the optimizers that a JSON can name, their parameters and parameter groups
lamb              LAMB, the optimizer
zero_layout       finds where each tensor's elements lie in DeepSpeed's buffers, and checks it at the start
workarounds       workarounds for what DeepSpeed does wrong, or slowly
estimates         memory and time of training, by formulas
hardware          this rank's accelerator; data sheets of GPU kinds
"""
