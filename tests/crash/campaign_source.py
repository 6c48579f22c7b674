"""What the stream campaign is fed with: numbered rows to all partitions of a topic, and files of them into a folder, all the time."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.crash.campaign_rows import FILES, row

TICK = 0.05
ROWS_PER_TICK = 30
TICKS_PER_FILE = 20
AHEAD = 5000
"""Rows that may be on their way: a machine that is slow for other reasons gets fewer rows, not ever larger batches."""


class Feed:
    """A thread that produces until `finish`. `produced` says how many rows of each part there are, those on their way included."""

    def __init__(self, address: str, topic: str, partitions: int, folder: Path, seed: int) -> None:
        self._client = {"bootstrap.servers": address, "broker.address.family": "v4", "log_level": 0}
        self._topic = topic
        self._folder = folder
        self._rng = random.Random(seed)
        self._partitions = 0
        self._files = 0
        self._lock = threading.Lock()
        self._sent: dict[int, int] = {FILES: 0}
        self._seen = 0
        self._over = threading.Event()
        self.failure: BaseException | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._admin = AdminClient(self._client)
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        # Sends again until the broker is back, and the broker drops what it has: without that, Kafka itself would have rows twice.
        settings = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 300_000, "topic.metadata.refresh.interval.ms": 500}
        self._producer = Producer({**self._client, **settings, "linger.ms": 5, "reconnect.backoff.max.ms": 500})
        self._grown(partitions)
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    @property
    def produced(self) -> dict[int, int]:
        with self._lock:
            return dict(self._sent)

    def seen(self, rows: int) -> None:
        """So many rows are in the table."""
        self._seen = rows

    @property
    def partitions(self) -> int:
        return self._partitions

    def grow(self) -> int:
        """One partition more. Returns how many there are."""
        wanted = self._partitions + 1
        self._admin.create_partitions([NewPartitions(self._topic, wanted)])[self._topic].result(60)
        self._grown(wanted)
        return wanted

    def _grown(self, partitions: int) -> None:
        with self._lock:
            self._sent |= dict.fromkeys(range(self._partitions, partitions), 0)
        self._partitions = partitions

    def finish(self) -> dict[int, int]:
        """Stop, wait until Kafka has everything, and say how many rows of each part there are."""
        self._over.set()
        self._thread.join(60)
        if self.failure is None:
            assert self._producer.flush(60) == 0, "Kafka did not take all rows"
        if self.failure is not None:
            raise AssertionError("rows could not be produced") from self.failure
        return self.produced

    def abandon(self) -> None:
        """Stop, whatever is on its way. May be called after `finish`."""
        self._over.set()
        self._thread.join(60)
        self._producer.purge()
        self._producer.flush(5)

    def _run(self) -> None:
        ticks = 0
        try:
            while not self._over.wait(TICK):
                self._producer.poll(0)
                if sum(self.produced.values()) - self._seen > AHEAD:
                    continue
                for _ in range(self._rng.randrange(1, 2 * ROWS_PER_TICK)):
                    self._send(self._rng.randrange(self._partitions))
                ticks += 1
                if ticks % TICKS_PER_FILE == 0:
                    self._file(self._rng.choice([1, 20, 200]))
        except BaseException as e:
            self.failure = e

    def _next(self, part: int, rows: int = 1) -> int:
        """The number of the next row: it counts as produced before anybody can see it."""
        with self._lock:
            first = self._sent[part]
            self._sent[part] += rows
            return first

    def _send(self, partition: int) -> None:
        value = json.dumps(row(partition, self._next(partition))).encode()
        while True:
            try:
                return self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            except (BufferError, KafkaException):  # its queue is full, or it has not heard of a new partition yet
                if self._over.is_set():
                    raise
                self._producer.poll(0.1)

    def _delivered(self, error: object, _: object) -> None:
        if error:
            self.failure = self.failure or AssertionError(f"Kafka refused a row: {error}")

    def _file(self, rows: int) -> None:
        first = self._next(FILES, rows)
        self._files += 1
        name = f"{self._files:06}.json"
        temporary = self._folder.parent / f".{name}"
        temporary.write_text("".join(json.dumps(row(FILES, first + i)) + "\n" for i in range(rows)))
        temporary.rename(self._folder / name)
        time.sleep(0.002)  # Spark orders files by the millisecond
