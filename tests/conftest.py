"""Settings and fixtures that all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: The same examples on every machine, and no time limit on a busy one.
settings.register_profile(
    "npulse",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("npulse")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of third-party models, data sets and vectors beside the project."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        message = f"third-party data is absent: no folder {folder.name} beside the project"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder
