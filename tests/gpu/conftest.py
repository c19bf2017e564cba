"""The device of a test: the processor, and the GPU with the marker `gpu`."""

import pytest
import torch

MARKS = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")]
"""Of a test on a GPU."""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=MARKS)])
def device(request):
    """Each test runs on both; on the processor with small sizes."""
    return torch.device(request.param)
