"""What users read: refusals word for word as documented, and the log's sentences."""

from __future__ import annotations

from berth.control.review import Answer, cut, denied
from berth.errors import ApiDown, ApiError, KubeError, StatusError
from berth.net import Family

NO_METALLB = "metallb operator is not available. Please make sure Metallb is installed and running"
ONE_PER_FAMILY = "metallb supports only one (1) address pr ip-family"
BAD_RETENTION = "not able to convert byte retentionPeriodDays to Integer"
RETENTION_OVER = "retention period cannot be more than 30 days"
RETENTION_UNDER = "retention period cannot be less than 0 days"
ZONE_KEPT = "change of zone is prohibited while keeping old addresses"
NO_URL = "environment variable for IPAM-API IPAM_API_URL was not found"
SECRET_LENGTH = "secret must have 8 to 64 characters"
SHARED = "Could not register address: multiple services registered. unable to change secret"
LONGEST_PASSED_ON = 1000  # characters of what the API server says


class No(Exception):
    """The request is refused; the one way to say so between the webhooks and their answers."""

    def __init__(self, message: str, *, code: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def answer(self) -> Answer:
        return denied(self.message, code=self.code, reason=self.reason)


def said_by_server(error: KubeError) -> No:
    """The API server's own answer, passed through; of one that repeats all it was sent, the beginning."""
    if isinstance(error, StatusError):
        message = error.message if len(error.message) <= LONGEST_PASSED_ON else cut(error.message)
        return No(message, code=error.code, reason=error.status_reason or error.reason)
    return No(f"the API server gave no answer: {error}", code=503, reason="ServiceUnavailable")


def said_by_api(error: ApiError, url: str) -> str:
    """The IPAM-API's message; or, without an answer, where we asked and what happened."""
    if isinstance(error, ApiDown):
        cause = error.__cause__
        text = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
        return f"fail to send request to: {url} , error: {text}"
    return str(error)


def family_word(family: Family) -> str:
    return f"ipv{int(family)}"


# As the API server says them: kubectl and controllers know what to do.


def exists(name: str) -> str:
    return f'services "{name}" already exists'


def missing(name: str) -> str:
    return f'services "{name}" not found'


def modified(name: str) -> str:
    return (
        f'Operation cannot be fulfilled on services "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


def terminating(namespace: str) -> str:
    return f"namespace {namespace} is being terminated: no Service gets an address there"


def too_many(most: int, namespace: str, seconds: float) -> str:
    return (
        f"more than {most} Services of namespace {namespace} have asked for addresses and are not there yet; "
        f"try again: what nobody used comes back within {seconds:g} s"
    )


def invalid_address(name: str, text: str) -> str:
    return f"invalid ip-address detected for Service: {name}: {text}"


def unknown_family(word: str) -> str:
    return (
        f"illegal ip-address family illegial specified ip-address family: {word[:100]} , "
        "Valid Choices: ipv4,ipv6 & dual"
    )


def bad_deny(name: str) -> str:
    return f"not able to convert string denyExternalCleanup to Bool for Service {name}"


def no_secret(name: str, namespace: str) -> str:
    return f"failed to get custom secret. Error: failed to get custom secret {name} in namespace {namespace}"


def bad_secret(name: str, namespace: str, fault: str) -> str:
    return f"failed to get custom secret. Error: secret {name} in namespace {namespace} {fault}"


def no_default_secret(why: str) -> str:
    return f"failed to get default secret. Error: {why}"


def not_requested(family: Family, name: str, why: str) -> str:
    return f"failed to request IP for address-family {family_word(family)} for Service {name}: {why}"


def not_created(name: str, why: str) -> str:
    return f"validation create failed for service {name}, Please verify f.ex secret: {why}"


def not_validated(family: Family, name: str, why: str) -> str:
    return f"failed to validate IP for address-family {family_word(family)} for Service {name}: {why}"


def not_replaced(family: Family, name: str, why: str) -> str:
    return f"failed to update secret for address-family {family_word(family)} for Service {name}: {why}"


def not_managed(shown: str, why: str) -> str:
    return f"address {shown} of this Service is not managed by IPAM: {why}"
