"""Reads modules of all dialects from text."""

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from npulse.sw.ir.graph import Graph
from npulse.sw.ir.tile import Tile
from npulse.sw.ir.tpu import Tpu


@pytest.fixture(scope="session")
def parse():
    """Function from text to a verified module."""

    def read(text: str):
        context = Context()
        for dialect in (Builtin, Func, Graph, Tile, Tpu):
            context.load_dialect(dialect)
        module = Parser(context, text).parse_module()
        module.verify()
        return module

    return read
