"""Exactly once from Spark: a stream goes on while whatever takes part in it is killed, fails or changes. Nothing lost, nothing twice.

Rows come from a real Kafka broker and from files, all the time. After every event the stream must go on by itself, and the table must hold
nothing but a duplicate-free part of what was produced; at the end, all of it. The seed is printed; TIDEWHEEL_SEED=n draws the same events
again (what happens between them is up to the machine), CAMPAIGN_EVENTS=n so many of them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.campaign import TABLE, Campaign
from tests.crash.campaign_rows import missing, wrong, wrong_rejects

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
EVENTS = int(os.environ.get("CAMPAIGN_EVENTS") or 120)

KINDS: dict[str, tuple[int, Callable[[Campaign], str]]] = {
    "worker killed": (3, Campaign.kill_worker),
    "owner killed": (3, Campaign.kill_owner),
    "driver killed": (1, Campaign.kill_driver),
    "task error": (2, Campaign.task_error),
    "commit error": (1, Campaign.commit_error),
    "replay": (2, Campaign.replay),
    "broker killed": (1, Campaign.kill_broker),
    "cut differently": (2, Campaign.cut_differently),
}
"""What can happen, and how often in proportion."""


def events(rng: random.Random) -> list[str]:
    """Each once, as far as there is room, the rest by weight, in any order."""
    cheap = {name: weight for name, (weight, _) in KINDS.items() if EVENTS >= 30 or name not in ("driver killed", "broker killed")}
    chosen = list(KINDS) + rng.choices(list(cheap), list(cheap.values()), k=max(0, EVENTS - len(KINDS)))
    rng.shuffle(chosen)
    return chosen[:EVENTS]


@pytest.mark.skipif(not SOAK, reason="in the soak; test_spark_sink has restarts, replays and other splits")
@pytest.mark.timeout(7200)
def test_a_stream_goes_on_whatever_dies(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    campaign = Campaign(tmp_path, SEED)
    began = time.monotonic()
    try:
        campaign.begin()
        print(f"{time.monotonic() - began:6.1f} s  the stream runs")
        for kind in events(random.Random(SEED)):
            failures = len(campaign.failures)
            detail = KINDS[kind][1](campaign)
            seconds = campaign.wait_for_progress()
            assert not (bad := campaign.fault()), f"after {kind} ({detail}): {bad}"
            restarts = len(campaign.failures) - failures
            print(
                f"{time.monotonic() - began:6.1f} s  {kind:16} {detail:45} went on after {seconds:4.1f} s, {restarts} restarts of the query"
            )
            if campaign.rng.random() < 0.3:
                campaign.flush()
        produced = campaign.finish()
    finally:
        campaign.end()
    with tw.open(campaign.root) as wh:  # once more, by an owner that has only what is on disk
        rows = wh.table(TABLE).query().to_arrow()
        assert not missing(rows, produced)
        assert not wrong(rows, produced)
        rejects = wh.table(TABLE).rejects().to_arrow()
        assert not (bad := wrong_rejects(rejects, produced, complete=True)), bad
        assert wh.check().ok
    print(
        f"{EVENTS} events, {rows.num_rows:,} rows and {len(rejects):,} rejects, each once; {len(campaign.failures)} restarts of the query"
    )
