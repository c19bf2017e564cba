"""Plans a run: its memory, time and cost, before a GPU is rented.

    python -m pipeline.plan --model albert-xxlarge --deepspeed_config ds_configs/xxlarge.json \\
        --nodes 8 --gpus-per-node 8 --gpu h100

Prints parameters, bytes on a GPU by kind, the largest micro-batch that fits, the time of a step and of the run, disk
space, warnings, and the fastest settings that fit. The speed of the GPU comes from a result file of
`make gpu` (--benchmark). Without one it is an assumption, which is printed.
"""

import sys
from collections.abc import Sequence

from common.command_line import entry_point
from pipeline.planning.plan import make_plan, report
from pipeline.planning.request import parse, resolve


@entry_point
def main(argv: Sequence[str]) -> None:
    """Prints the plan. UserError: a mistake."""
    print(report(make_plan(resolve(parse(argv)))))


if __name__ == "__main__":
    sys.exit(main())
