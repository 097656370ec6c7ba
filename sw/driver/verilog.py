"""The Verilog of an NPU's core, as `npulse verilog` writes it."""

from dataclasses import asdict
from pathlib import Path

from npulse.hw.emit import Emitted, emit, save
from npulse.hw.spec.flavours import Npu
from npulse.sw.driver.cores import make_core
from npulse.sw.errors import UserError

__all__ = ["core_verilog", "top_name", "write_verilog"]


def top_name(npu: Npu) -> str:
    """Name of the top module: ``tpu_v1_sim`` for ``tpu-v1:sim``."""
    return npu.name.replace("-", "_").replace(":", "_")


def core_verilog(npu: Npu) -> Emitted:
    """Verilog of a core.

    Raises
    ------
    UserError
        The core has more grid cells than can be unrolled.
    """
    about = {
        "npu": npu.name,
        "overrides": list(npu.overrides),
        "digest": npu.config.digest,
        "parameters": asdict(npu.config),
    }
    try:
        return emit(lambda: make_core(npu), top=top_name(npu), about=about)
    except ValueError as error:
        raise UserError(f"{error}; take a smaller size, or --set array.rows and cols") from None


def write_verilog(emitted: Emitted, folder: Path) -> list[Path]:
    """Write Verilog and metadata into a folder, which is made if absent."""
    try:
        return save(emitted, folder)
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written: {error.strerror}; give a folder that is yours to write"
        ) from None
