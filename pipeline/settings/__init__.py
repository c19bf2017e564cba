"""What a run is: the flags of its command, and what its start found out. Nothing here imports torch.

declare         a flag as a field of a dataclass: command line and YAML
run_flags       the flags that both commands share
pretrain_flags  the flags of `pipeline.pretrain`
finetune_flags  the flags of `pipeline.finetune`
run_settings    the flags and what the start found out; what a resume must not change
settings_file   settings.json: writes it, and reads that of this version and of earlier ones
"""
