from typing import ClassVar as _ClassVar

from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("node", "round", "training")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    training: int
    node: int
    round: int
    def __init__(self, training: int | None = ..., node: int | None = ..., round: int | None = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("last_used", "round")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    round: int
    last_used: int
    def __init__(self, round: int | None = ..., last_used: int | None = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("fingerprint", "node", "round", "training", "version")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    training: int
    node: int
    round: int
    version: int
    fingerprint: int
    def __init__(
        self,
        training: int | None = ...,
        node: int | None = ...,
        round: int | None = ...,
        version: int | None = ...,
        fingerprint: int | None = ...,
    ) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("fingerprint", "frames", "last_used", "round", "version")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    round: int
    frames: bytes
    version: int
    fingerprint: int
    last_used: int
    def __init__(
        self,
        round: int | None = ...,
        frames: bytes | None = ...,
        version: int | None = ...,
        fingerprint: int | None = ...,
        last_used: int | None = ...,
    ) -> None: ...

class DeliverRequest(_message.Message):
    __slots__ = ("frames", "node", "round", "training")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    training: int
    node: int
    round: int
    frames: bytes
    def __init__(
        self, training: int | None = ..., node: int | None = ..., round: int | None = ..., frames: bytes | None = ...
    ) -> None: ...

class DeliverReply(_message.Message):
    __slots__ = ("used",)
    USED_FIELD_NUMBER: _ClassVar[int]
    used: bool
    def __init__(self, used: bool | None = ...) -> None: ...
