"""The flags of the training commands, declared once. Nothing here imports torch.

declare     a flag as a field of a dataclass: command line, YAML, identity of a run
run         the flags that both commands share
pretrain    the flags of `pipeline.pretrain`
finetune    the flags of `pipeline.finetune`
__main__    prints docs/flags.md
"""
