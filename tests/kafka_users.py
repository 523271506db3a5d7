"""Users of a secured broker who may do what they were granted, and nothing else."""

import json
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.services import connections_of, unique
from tests.waiting import wait_until

from tidemark.stack import Stack

_LOGIN = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)


class KafkaUser:
    def __init__(self, stack: Stack) -> None:
        settings: dict[str, Any] = dict(connections_of(stack)("kafka_main").extra)
        self.name, password = unique("user"), unique("password")
        self._settings = {**settings, "sasl.username": self.name, "sasl.password": password}
        self._admin = AdminClient(settings)
        upsertion = UserScramCredentialUpsertion(self.name, _LOGIN, password.encode())
        self._admin.alter_user_scram_credentials([upsertion])[self.name].result(30)
        wait_until(self._can_log_in, f"{self.name} can log in")

    def connection(self) -> str:
        return json.dumps({"conn_type": "kafka", "extra": self._settings})

    def grant(self, topic: str, operation: AclOperation) -> None:
        """What may be done with a topic; the broker knows of it afterwards."""
        which = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{self.name}", "*", operation)
        binding = AclBinding(*which, AclPermissionType.ALLOW)
        self._admin.create_acls([binding])[binding].result(30)
        asked = AclBindingFilter(*which, AclPermissionType.ALLOW)
        wait_until(lambda: bool(self._admin.describe_acls(asked).result(30)), f"{self.name} is granted {operation}")

    def _can_log_in(self) -> bool:
        try:
            return bool(AdminClient({**self._settings, "log_level": 0}).list_topics(timeout=5).brokers)
        except KafkaException:
            return False
