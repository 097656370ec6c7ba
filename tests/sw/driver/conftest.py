"""One device for all tests of a process: building the core takes seconds."""

from collections.abc import Iterator

import pytest

from npulse.hw.spec.flavours import resolve
from npulse.sw.driver.rtl import RtlDevice


@pytest.fixture(scope="session")
def core() -> RtlDevice:
    """The smallest core that the checks of this folder need."""
    npu = resolve("tpu-v1:sim", ["array.rows=2", "array.cols=2"])
    return RtlDevice(npu, memory_bytes=4096)


@pytest.fixture
def device(core: RtlDevice) -> Iterator[RtlDevice]:
    """The device as after power-up."""
    core.reset()
    yield core
