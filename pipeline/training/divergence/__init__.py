"""Signs that training has diverged, and the way back.

non_finite   losses that are not finite, fp16 gradients that overflow
spike_watch  reads the loss and gradient norm of each step, and decides what follows from a spike
spikes       finds a spike in losses and gradient norms
rollback     goes back to a checkpoint before a spike, and records which batches are passed over
"""
