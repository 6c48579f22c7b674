"""Forked processes and DuckDB: a child has databases of its own, whatever its parent had or was doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import os, signal, sys, threading
import pyarrow as pa
from tidewheel.duck import evaluator, parser
from tidewheel.read.limits import NEVER, Limits, Watch
from tidewheel.read.row_expressions import Filter
from tidewheel.sql import database

class Wanted:
    cancelled = False

rows = pa.table({"k": range(100_000)})

def where():
    watch = Watch(Limits(NEVER, NEVER, NEVER), Wanted())
    assert Filter("k % 10 < 3", rows.schema, "k", watch).mask(rows, watch).true_count == 30_000

def parse():
    assert "node" in parser.tree_of("SELECT 1")

def statement():
    own = database.database(1 << 30)
    session = own.take("warehouse")
    assert session.connection.sql("SELECT 42").fetchall() == [(42,)]
    own.give_back(session, "warehouse", True)

use = {"where": where, "parse": parse, "statement": statement}[sys.argv[1]]
kept = {"where": evaluator._evaluator, "parse": parser._parser, "statement": database._databases}[sys.argv[1]]

def in_a_child(work):
    pid = os.fork()
    if not pid:
        signal.alarm(20)  # if it hangs
        work()
        sys.exit()  # with all that is done at the end of a process
    assert os.waitpid(pid, 0)[1] == 0
"""


def run(code: str, what: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", START + code, what], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", ["where", "parse", "statement"])
def test_a_child_has_databases_of_its_own(what: str) -> None:
    """Its parent's are neither used nor closed in it."""
    code = """
use()
before = kept.items[0]
def work():
    assert not kept.items
    use()
    assert kept.items[0] is not before
in_a_child(work)
use()
assert kept.items[0] is before
"""
    run(code, what)


@pytest.mark.parametrize("what", ["where", "parse", "statement"])
def test_a_fork_while_another_thread_has_the_lock(what: str) -> None:
    code = """
locked, done = threading.Event(), threading.Event()
def hold():
    with kept.lock:
        locked.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
locked.wait()
in_a_child(use)
done.set()
thread.join()
use()
"""
    run(code, what)
