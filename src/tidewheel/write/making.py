"""Make the file of one chunk: rows of a tree, arranged by a template whose codes are right for them."""

from __future__ import annotations

from dataclasses import replace

from tidewheel.chunk.format import zoned_columns
from tidewheel.chunk.writer import Origin, write_chunk
from tidewheel.env.store import WriteOnce
from tidewheel.index.layout import Template
from tidewheel.index.table_coders import Coders
from tidewheel.index.tree import TreeView
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ChunkRecord, TableRecord
from tidewheel.write.arrange import Arranger, latest, partitions
from tidewheel.write.templates import fits, fitting_template, surely_unfit


def make_chunk(
    files: WriteOnce, table: TableRecord, arranger: Arranger, view: TreeView, template: Template, coders: Coders, shape: Shape
) -> tuple[ChunkRecord, Template]:
    """Write a chunk under its temporary name. Returns its catalog row and the template that its rows were routed by in the end."""
    spec, tree = table.spec, view.tree
    learned = surely_unfit(view, template)
    if learned:
        template = fitting_template(view, template, coders, arranger.leaf_rows)
    while True:
        with arranger.arrange(view, template, shape, zoned_columns(spec)) as arranged:
            if learned or fits(arranged, template.coder):
                counts = partitions(arranged, spec.partitions)
                origin = Origin(tree.server, tree.late, template.coder.prefix)
                record = write_chunk(files, table, arranged, counts, origin)
                return replace(record, latest=latest(arranged, counts, spec.partitions)), template
        template, learned = fitting_template(view, template, coders, arranger.leaf_rows), True
