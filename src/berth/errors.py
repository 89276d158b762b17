"""All our errors as one tree. Each has a reason: one CamelCase word, the same in conditions, Events,
HTTP bodies, metrics and logs. The type says whether trying again can help.

    BerthError
    ├── InvalidText            text that is no address, range or block (also a ValueError)
    ├── UserError              a command cannot do what it was asked; one sentence, no traceback
    ├── Taken                  a ledger refused a double: someone else has that block
    ├── NotLeader              this process may not write (any more)
    ├── StoreDown              the SQL ledger cannot answer or write now: down, busy, disk full; try again
    ├── ApiError               the IPAM-API, seen by its clients
    │   ├── ApiDown            no answer: the effect is UNKNOWN; repeat the request, it is idempotent
    │   └── ApiRefused         an answer that is a no, with its status, message and reason word
    └── KubeError              the API server said no, or nothing
        ├── Unreachable        no answer: down, cut, timed out. The effect is UNKNOWN; read before deciding
        └── StatusError        an answer with a status
            ├── BadRequest 400, Unauthorized 401, Forbidden 403, NotFound 404
            ├── AlreadyExists 409, Conflict 409, Gone 410, Invalid 422
            └── TooManyRequests 429, ServerError 5xx
"""

from __future__ import annotations

from typing import Any, ClassVar


class BerthError(Exception):
    """The root: something Berth itself raises."""

    reason: ClassVar[str] = "Internal"
    transient: ClassVar[bool] = False  # it may pass by itself: whoever met it tries again later
    retry_after_seconds: float | None = None  # not sooner than that


class InvalidText(BerthError, ValueError):
    """Text that is not what it should be; the message names the text."""

    reason = "InvalidText"


class UserError(BerthError):
    """What the person at the terminal should read: one sentence and what to do."""

    reason = "UserError"


def file_fault(error: Exception) -> str:
    """Why a file cannot be used, in one line and without the path: the sentence around it has it."""
    return getattr(error, "strerror", None) or " ".join(str(error).split())


class Taken(BerthError):
    """The ledger refused: the block is another holder's."""

    reason = "Taken"

    def __init__(self, block: object, holder: str | None = None) -> None:
        super().__init__(f"{block} is taken" + (f" by {holder}" if holder else ""))
        self.block = block
        self.holder = holder


class NotLeader(BerthError):
    """A write was refused before it was sent: another replica leads, or may lead by now."""

    reason = "NotLeader"


class StoreDown(BerthError):
    """The SQL ledger cannot answer or write now. Nothing was acknowledged; trying again later can help."""

    reason = "StoreDown"
    transient = True


class ApiError(BerthError):
    """The IPAM-API said no, or nothing. A no may pass too: a full zone has room when others leave it."""

    reason = "ApiError"
    transient = True
    retry_after_seconds = 0.5


class ApiDown(ApiError):
    """No answer came. Whether the request took effect is unknown; repeating it is safe."""

    reason = "ApiDown"


class ApiRefused(ApiError):
    """The IPAM-API answered with a no."""

    reason = "ApiRefused"

    def __init__(self, status: int, message: str, why: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.why = why  # the reason word of the body


class KubeError(BerthError):
    """The API server said no, or nothing."""

    reason = "KubeError"


class Unreachable(KubeError):
    """No answer came. Whether the request took effect is unknown."""

    reason = "Unreachable"
    transient = True


class StatusError(KubeError):
    """An answer with a status that is not success; carries the server's own words."""

    reason = "StatusError"

    def __init__(
        self,
        code: int,
        message: str,
        *,
        status_reason: str = "",
        details: dict[str, Any] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status_reason = status_reason
        self.details = details or {}
        self.retry_after_seconds = retry_after_seconds


class BadRequest(StatusError):
    reason = "BadRequest"


class Unauthorized(StatusError):
    reason = "Unauthorized"
    transient = True  # a rotated token is read again before the next try


class Forbidden(StatusError):
    reason = "Forbidden"


class NotFound(StatusError):
    reason = "NotFound"


class AlreadyExists(StatusError):
    reason = "AlreadyExists"


class Conflict(StatusError):
    reason = "Conflict"
    transient = True


class Gone(StatusError):
    reason = "Gone"


class Invalid(StatusError):
    reason = "Invalid"


class TooManyRequests(StatusError):
    reason = "TooManyRequests"
    transient = True


class ServerError(StatusError):
    reason = "ServerError"
    transient = True
