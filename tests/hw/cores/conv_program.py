"""One convolution (with an optional max-pool) as a program written by hand, and what it makes."""

from dataclasses import dataclass, field

import numpy as np

from npulse.hw.spec.numerics import RequantScheme
from npulse.hw.spec.tpu_v1 import TpuV1Config
from npulse.hw.spec.tpu_v1_isa import ISA, UNITS
from npulse.hw.spec.tpu_v1_layout import (
    blocks,
    conv_tiles,
    pack_activations,
    pack_parameters,
    pack_tiles,
    tensor_rows,
    unpack_activations,
)
from npulse.sim.golden.conv import conv2d
from npulse.sim.golden.pool import max_pool2d
from npulse.sim.golden.requant import requantize

ALIGN = 128  #: Bytes; a multiple of every port's width.


@dataclass(kw_only=True)
class Conv:
    """Shapes and values of a layer; y is (KH, ...) first, as everywhere."""

    x: np.ndarray  #: (H, W, C) int8
    weights: np.ndarray  #: (O, KH, KW, C) int8
    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    scheme: RequantScheme = RequantScheme.TFLITE_Q31_DOUBLE
    stride: tuple = (1, 1)
    dilation: tuple = (1, 1)
    padding: tuple = ((0, 0), (0, 0))
    input_zero_point: int = 0
    zero_point: int = 0
    act_min: int = -128
    act_max: int = 127
    pool: tuple | None = None  #: ((KH, KW), stride, padding)
    chunk_lines: int = 10**9  #: Output lines of one instruction at most, where no pool is.

    def golden(self):
        """Output (OH, OW, O) int8."""
        acc = conv2d(
            self.x[None],
            self.weights,
            self.bias,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            input_zero_point=self.input_zero_point,
        )
        out = requantize(
            acc,
            self.multiplier,
            self.shift,
            zero_point=self.zero_point,
            act_min=self.act_min,
            act_max=self.act_max,
            scheme=self.scheme,
        )
        if self.pool:
            window, stride, padding = self.pool
            out = max_pool2d(out, window, stride=stride, padding=padding)
        return out[0]


@dataclass
class Program:
    """Instructions and the DRAM around them."""

    config: TpuV1Config
    memory: bytearray = field(default_factory=bytearray)
    lines: list = field(default_factory=list)

    def place(self, content):
        """Append bytes at the next aligned address; return the address."""
        self.memory.extend(bytes(-len(self.memory) % ALIGN))
        address = len(self.memory)
        self.memory.extend(content)
        return address

    def emit(self, name, **values):
        self.lines.append(ISA.make(name, **values))

    def sync(self, *units):
        self.emit("Sync", units=sum(UNITS[unit] for unit in units))

    def words(self):
        return b"".join(ISA.encode(line) for line in self.lines)


def conv_program(config, conv):
    """Program that loads, convolves and stores; with the address and shape of the output."""
    p = Program(config)
    height, width, channels = conv.x.shape
    expected = conv.golden()
    outs, kernel_y, kernel_x, _ = conv.weights.shape
    (top, _), (left, _) = conv.padding
    span_y = conv.dilation[0] * (kernel_y - 1) + 1
    span_x = conv.dilation[1] * (kernel_x - 1) + 1
    lines = (height + sum(conv.padding[0]) - span_y) // conv.stride[0] + 1
    columns = (width + sum(conv.padding[1]) - span_x) // conv.stride[1] + 1

    folded = conv.bias.astype(np.int64) - conv.input_zero_point * conv.weights.astype(np.int64).sum(
        (1, 2, 3)
    )
    tiles = conv_tiles(config, conv.weights)
    source = p.place(pack_activations(config, conv.x))
    tile_at = [p.place(pack_tiles(config, one)) for one in tiles]
    entries = p.place(
        pack_parameters(
            config,
            bias=folded.astype(np.int32),
            multiplier=conv.multiplier,
            shift=conv.shift,
            scheme=conv.scheme,
            zero_point=conv.zero_point,
            act_min=conv.act_min,
            act_max=conv.act_max,
        )
    )
    entry_bytes = 12 * config.weight_row_beats * config.bus.weight_bytes
    out_rows = tensor_rows(config, *expected.shape)
    target = p.place(bytes(out_rows * config.host_row_bytes))
    in_rows = tensor_rows(config, height, width, channels)
    p.emit(
        "ReadHostMemory",
        dram_addr=source,
        ub_addr=0,
        rows=in_rows,
        runs=1,
        dram_stride=0,
        ub_stride=0,
    )
    p.sync("host")

    half, first_chunk = 0, True
    chunk = (
        lines if conv.pool else max(1, min(lines, conv.chunk_lines, config.half_rows // columns))
    )
    assert chunk * columns <= config.half_rows
    for index in range(len(tiles)):
        p.emit("ReadParameters", dram_addr=entries + index * entry_bytes, entries=1)
        first_chunk = True
        for begin in range(0, lines, chunk):
            now = min(chunk, lines - begin)
            keep = tiles.shape[1] == 1 and not first_chunk
            if not keep:
                p.emit("ReadWeights", dram_addr=tile_at[index], tiles=tiles.shape[1])
            origin_y, origin_x = begin * conv.stride[0] - top, -left
            p.emit(
                "MatrixMultiply",
                ub_addr=(origin_y * width + origin_x) % (1 << 17),
                acc_addr=half * config.half_rows,
                accumulate=0,
                switch=int(not keep),
                fill=conv.input_zero_point,
                blocks=blocks(config, channels),
                block_stride=height * width,
                kernel_y=kernel_y,
                kernel_x=kernel_x,
                rows_y=now,
                rows_x=columns,
                step_y=conv.stride[0],
                step_x=conv.stride[1],
                dilate_y=conv.dilation[0],
                dilate_x=conv.dilation[1],
                step_y_rows=conv.stride[0] * width,
                dilate_y_rows=conv.dilation[0] * width,
                origin_y=origin_y,
                origin_x=origin_x,
                limit_y=height,
                limit_x=width,
            )
            block, group = divmod(index, config.write_groups)
            place = in_rows + block * expected.shape[0] * expected.shape[1]
            window, stride, padding = conv.pool or ((1, 1), (1, 1), ((0, 0), (0, 0)))
            pad_y, pad_x = padding[0][0], padding[1][0]
            out_lines = expected.shape[0] if conv.pool else now
            p.emit(
                "Activate",
                acc_addr=half * config.half_rows + (-pad_y * columns - pad_x) % config.half_rows,
                ub_addr=place + begin * columns,
                group=group,
                switch=int(first_chunk),
                rows_y=out_lines,
                rows_x=expected.shape[1],
                window_y=window[0],
                window_x=window[1],
                step_y=stride[0],
                step_x=stride[1],
                step_y_rows=stride[0] * columns,
                window_y_rows=columns,
                origin_y=-pad_y,
                origin_x=-pad_x,
                limit_y=now,
                limit_x=columns,
                ub_y_stride=expected.shape[1],
            )
            half, first_chunk = 1 - half, False
    p.sync("activate")
    p.emit(
        "WriteHostMemory",
        dram_addr=target,
        ub_addr=in_rows,
        rows=out_rows,
        runs=1,
        dram_stride=0,
        ub_stride=0,
    )
    p.emit("Halt")
    return p, target, expected


def run(device, program, target, shape):
    """Load the memory, run the program, and return (output, counters)."""
    start = program.place(program.words())
    device.write(0, bytes(program.memory))
    device.start(start, len(program.lines))
    stats = device.wait(200_000)
    config = program.config
    count = tensor_rows(config, *shape) * config.host_row_bytes
    return unpack_activations(config, device.read(target, count), shape), stats


def random_conv(rng, config, *, small=False):
    """Layer of random shape that fits the configuration; a few hundred cycles if `small`."""
    rows = config.half_rows
    while True:
        height, width = (int(v) for v in rng.integers(1, 4 if small else 7, 2))
        kernel = tuple(int(v) for v in rng.integers(1, 3 if small else 4, 2))
        stride = tuple(int(v) for v in rng.integers(1, 3, 2))
        dilation = tuple(int(v) for v in rng.integers(1, 3, 2))
        padding = tuple(tuple(int(v) for v in rng.integers(0, 2, 2)) for _ in range(2))
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        sizes = [
            (size + sum(pad) - span) // s + 1
            for size, pad, span, s in zip((height, width), padding, spans, stride, strict=True)
        ]
        if (
            all(
                size + sum(pad) >= span
                for size, pad, span in zip((height, width), padding, spans, strict=True)
            )
            and sizes[0] * sizes[1] <= rows
        ):
            break
    passes = 1 if small else 2
    channels = int(rng.integers(1, passes * config.block_channels + 1))
    channels = channels if rng.random() < 0.7 else 1
    outs = int(rng.integers(1, passes * config.array.cols + 2))
    pool = None
    if rng.random() < 0.4 and min(sizes) >= 2:
        pool_pad = ((int(rng.integers(2)), 0), (0, int(rng.integers(2))))
        pool = ((2, 2), tuple(int(v) for v in rng.integers(1, 3, 2)), pool_pad)
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
    narrow = rng.random() < 0.3
    return Conv(
        x=rng.integers(-128, 128, (height, width, channels)).astype(np.int8),
        weights=rng.integers(-127, 128, (outs, *kernel, channels)).astype(np.int8),
        bias=rng.integers(-(2**16), 2**16, outs).astype(np.int32),
        multiplier=rng.integers(2**30, 2**31, outs).astype(np.int32),
        shift=rng.integers(-14, -6, outs).astype(np.int8),
        scheme=list(RequantScheme)[int(rng.integers(3))],
        stride=stride,
        dilation=dilation,
        padding=padding,
        input_zero_point=int(rng.integers(-128, 128)),
        zero_point=int(rng.integers(-128, 128)),
        act_min=low if narrow else -128,
        act_max=high if narrow else 127,
        pool=pool,
        chunk_lines=int(rng.integers(1, 8)),
    )
