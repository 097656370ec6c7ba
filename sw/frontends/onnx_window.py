"""Windows of ONNX convolutions and poolings: strides, dilations and padding as numbers."""

from dataclasses import dataclass

from npulse.sw.frontends.onnx_reader import OnnxNode
from npulse.sw.ir.graph_rules import window_output


@dataclass(frozen=True)
class Window:
    """Places of a 2-D window; pads are top, left, bottom, right."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    out: tuple[int, int]

    @staticmethod
    def of(node: OnnxNode, image: tuple[int, int], kernel: tuple[int, int]) -> "Window | None":
        """Read strides, dilations, pads and auto_pad of a node; None when they are no 2-D window.

        Ref: ONNX operator Conv, attributes auto_pad and pads.
        """
        attributes = node.attributes
        strides = list(attributes.get("strides", [1, 1]))
        dilations = list(attributes.get("dilations", [1, 1]))
        pads = list(attributes.get("pads", [0, 0, 0, 0]))
        if len(strides) != 2 or len(dilations) != 2 or len(pads) != 4:
            return None
        if min(*strides, *dilations, *kernel) < 1 or min(pads) < 0:
            return None
        mode = attributes.get("auto_pad", b"NOTSET")
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            pads = [0, 0, 0, 0]
            for axis in (0, 1):
                extent = dilations[axis] * (kernel[axis] - 1) + 1
                places = -(-image[axis] // strides[axis])
                total = max((places - 1) * strides[axis] + extent - image[axis], 0)
                small, large = total // 2, total - total // 2
                upper = mode == b"SAME_UPPER"
                pads[axis], pads[axis + 2] = (small, large) if upper else (large, small)
        elif mode == b"VALID":
            pads = [0, 0, 0, 0]
        elif mode != b"NOTSET":
            return None
        out = [
            window_output(image[a], kernel[a], strides[a], dilations[a], pads[a] + pads[a + 2])
            for a in (0, 1)
        ]
        return Window(
            (strides[0], strides[1]),
            (dilations[0], dilations[1]),
            (pads[0], pads[1], pads[2], pads[3]),
            (out[0], out[1]),
        )
