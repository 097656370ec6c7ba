"""Reads the text of any level of the IR, so that passes can be tried on it."""

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from npulse.sw.ir.graph import Graph
from npulse.sw.ir.tile import Tile
from npulse.sw.ir.tpu import Tpu

__all__ = ["parse_module"]


def parse_module(text: str) -> ModuleOp:
    """Read and verify a module of the graph, tile and tpu dialects.

    Raises
    ------
    xdsl.utils.exceptions.ParseError, VerifyException
        The text is no such module; the message names the place or the operator.
    """
    context = Context()
    for dialect in (Builtin, Func, Graph, Tile, Tpu):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module
