"""The core's Verilog and the compiled library of Verilator, each made once."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def core_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Verilog and metadata of the smallest TPU v1, as the command writes them."""
    folder = tmp_path_factory.mktemp("verilog")
    command = "from npulse.sw.cli import main; main()"
    arguments = ["verilog", "--npu", "tpu-v1:sim", "-o", str(folder)]
    subprocess.run([sys.executable, "-c", command, *arguments], check=True, capture_output=True)
    return folder / "tpu_v1_sim.v", folder / "tpu_v1_sim.json"


@pytest.fixture(scope="session")
def verilated_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of objects that all builds share."""
    return tmp_path_factory.mktemp("library")
