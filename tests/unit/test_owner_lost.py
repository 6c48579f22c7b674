"""What a caller is told whose owner was lost: each operation says itself whether it may have been done."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tidewheel.cluster.owner_lost import late_during, lost_during
from tidewheel.cluster.requests import AskTable, CreateTable, GiveTable, OnTable, OnWarehouse, OpenTable
from tidewheel.engine import operations
from tidewheel.engine.operations import CommitBatch, CommitLoad, DropTable, GetState, Insert, ListTables, Replace, RunQuery
from tidewheel.engine.protocol import ASK_AGAIN, Operation, TableDelivery
from tidewheel.maintenance import warehouse_care
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec

ROOT = Path("wh")
SPEC: TableSpec = None  # type: ignore[assignment]  # no message is about it

UNSURE = [
    (GiveTable(1, Insert(None, "error")), "Insert", "may be there or not: look, or insert under a package name"),
    (GiveTable(1, Replace((0, 1))), "Replace", "replacing them again is safe"),
    (OnTable(1, CommitBatch("s", "r", 0, ())), "CommitBatch", "committing it again is safe"),
    (OnTable(1, CommitLoad("job", (), False)), "CommitLoad", "the rows may be there or not"),
    (OnWarehouse(DropTable("t")), "DropTable", "the table may be there or not"),
    (CreateTable(SPEC, "error"), "CreateTable", "the table may be there or not"),
]
HARMLESS = [
    (OnTable(1, GetState()), "GetState"),
    (AskTable(1, RunQuery(Query())), "RunQuery"),
    (OnWarehouse(ListTables()), "ListTables"),
    (OpenTable("t"), "OpenTable"),
]


@pytest.mark.parametrize(("request_", "name", "said"), UNSURE, ids=[name for _, name, _ in UNSURE])
def test_a_call_that_writes_says_what_may_have_happened(request_: Any, name: str, said: str) -> None:
    lost, late = lost_during(request_, ROOT, "Socket closed"), late_during(request_, ROOT, 1.5)
    assert f"lost during {name} (" in str(lost) and said in str(lost) and not lost.untouched
    assert str(late).startswith(f"{name} took longer than its timeout of 1.5 s") and said in str(late) and late.retryable


@pytest.mark.parametrize(("request_", "name"), HARMLESS, ids=[name for _, name in HARMLESS])
def test_a_call_that_only_asks_can_be_asked_again(request_: Any, name: str) -> None:
    assert str(lost_during(request_, ROOT, "Socket closed")).endswith(f"lost during {name} (Socket closed); {ASK_AGAIN}")
    assert str(late_during(request_, ROOT, 1.0)).endswith(ASK_AGAIN)


@pytest.mark.parametrize("request_", [request for request, *_ in (*UNSURE, *HARMLESS)], ids=lambda request: type(request).__name__)
def test_what_was_never_sent_was_not_done(request_: Any) -> None:
    lost = lost_during(request_, ROOT, "failed to connect to all addresses")
    assert lost.untouched and str(lost).endswith("; nothing was done")


def test_every_operation_has_a_word() -> None:
    """Rows that are brought, and batches and loads that are committed, are never simply asked for again; slices are staged anew."""
    found = [kind for home in (operations, warehouse_care) for kind in vars(home).values() if _is_operation(kind)]
    assert len(found) > 20 and all(isinstance(kind.if_lost, str) and kind.if_lost for kind in found)
    writing = [kind for kind in found if issubclass(kind, TableDelivery) or "Commit" in kind.__name__]
    careless = {kind.__name__ for kind in writing if kind.if_lost == ASK_AGAIN}
    assert careless == {"Stage"}


def _is_operation(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Operation) and not inspect.isabstract(kind)
