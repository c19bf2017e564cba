"""The flags of the training commands, declared once. Nothing here imports torch.

declare         a flag as a field of a dataclass: command line, YAML, identity of a run
run_flags       the flags that both commands share
pretrain_flags  the flags of `pipeline.pretrain`
finetune_flags  the flags of `pipeline.finetune`
"""
