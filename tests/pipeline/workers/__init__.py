"""What tests run in processes of their own; forked off one that has imported the slow packages, once for all."""

import multiprocessing

multiprocessing.set_forkserver_preload(["tests.pipeline.workers.preloaded"])
