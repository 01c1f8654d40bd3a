"""The messages of etcd's lock service (`v3lockpb`), which no client library for Python ships.

`Lock` returns when its caller is first in the queue, so its answer may come at any later time;
`Unlock` deletes the key that it is given, whoever asks.
"""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {"bytes": 12, "int64": 3}
_MESSAGES = {
    "LockRequest": {"name": (1, "bytes"), "lease": (2, "int64")},
    "LockResponse": {"key": (2, "bytes")},  # 1 is the header, which nobody needs
    "UnlockRequest": {"key": (1, "bytes")},
    "UnlockResponse": {},
}


def _load() -> dict[str, Any]:
    """Return the message classes by name, in a pool of their own."""
    file = descriptor_pb2.FileDescriptorProto(
        name="vanwinkle/v3lock.proto", package="v3lockpb", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            message.field.add(name=field, number=number, type=_TYPES[kind], label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v3lockpb.{name}"))
        for name in _MESSAGES
    }


class LockRpc:
    """The two calls on one channel: `lock(name=, lease=)` and `unlock(key=)`."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._messages = _load()
        self._lock = self._call(channel, "Lock")
        self._unlock = self._call(channel, "Unlock")

    def lock(self, name: bytes, lease: int) -> Any:
        """Ask for the lock and return the future of the answer; it has no deadline."""
        return self._lock.future(self._messages["LockRequest"](name=name, lease=lease))

    def unlock(self, key: bytes, timeout_s: float) -> None:
        """Give the lock back.  Raises grpc.RpcError."""
        self._unlock(self._messages["UnlockRequest"](key=key), timeout=timeout_s)

    def _call(self, channel: grpc.Channel, verb: str) -> Any:
        return channel.unary_unary(
            f"/v3lockpb.Lock/{verb}",
            request_serializer=self._messages[f"{verb}Request"].SerializeToString,
            response_deserializer=self._messages[f"{verb}Response"].FromString,
        )
