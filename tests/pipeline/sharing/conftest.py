"""The stand-in of the hub, to which HF_ENDPOINT and HF_TOKEN point."""

import pytest
from huggingface_hub import constants

from tests.pipeline.sharing.hub_server import TOKEN, HubServer


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield server
