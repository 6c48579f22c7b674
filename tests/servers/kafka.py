"""A real Kafka broker of one node on a free loopback port: `with Broker(jars, folder) as broker: broker.address`.

It dies with the process that started it, however that ends; start it from the main thread.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.servers.children import die_with_parent, free_ports

JARS = ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36")
"""With all that they depend on; Spark brings Scala's library."""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{control}
log.dirs={folder}/log
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.planner.state.topic.replication.factor=1
share.planner.state.topic.min.isr=1
share.planner.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.hours=-1
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""

OPTIONS = (
    "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)  # fmt: skip


class Broker:
    """Started and stopped as often as one likes; its topics stay, and so does its port."""

    def __init__(self, jars: Iterable[Path], folder: Path, java: str) -> None:
        self._command = [java, *OPTIONS, "-cp", os.pathsep.join(map(str, jars))]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port, control = free_ports(2)
        self.address = f"127.0.0.1:{self._port}"
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        self._properties.write_text(PROPERTIES.format(port=self._port, control=control, folder=folder))
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        done = subprocess.run(
            [*self._command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, patience: float = 60.0) -> Broker:
        log = self._folder / "broker.out"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._properties)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        end = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return self
            assert self._process.poll() is None and time.monotonic() < end, log.read_text()[-4000:]
            time.sleep(0.05)

    def stop(self, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        (process.kill if kill else process.terminate)()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # ---- what tests do with it ---------------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self._client())
        for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result(30)

    def send(self, topic: str, messages: Sequence[bytes | None], **message: Any) -> None:
        """Send them, over all partitions in turn unless a `key` or a `partition` is given; they are there when this returns."""
        from confluent_kafka import Producer

        failed: list[Any] = []
        producer = Producer({**self._client(), "linger.ms": 5, "queue.buffering.max.messages": 2_000_000, "partitioner": "random"})
        for value in messages:
            producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None, **message)
            producer.poll(0)
        assert producer.flush(60) == 0 and not failed, failed[:3]

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "broker.address.family": "v4", "log_level": 0}
