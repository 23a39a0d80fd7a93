"""What can go wrong between the operator and the API server."""

from __future__ import annotations

from typing import Any


class ClusterError(Exception):
    """The cluster cannot be reached or used. The text says what was expected, what was found and what to do."""


class NotLeadingError(ClusterError):
    """A write was attempted without a valid lease. The process must end."""


class ApiError(ClusterError):
    """The API server refused a request.

    Attributes:
        status: HTTP status code.
        reason: the API's CamelCase reason, such as Conflict; empty where it gave none.
        message: the API's own words, without the request.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @classmethod
    def of(cls, status: int, body: Any) -> ApiError:
        """From the answer's parsed body, a metav1.Status or anything else."""
        if isinstance(body, dict):
            return cls(status, str(body.get("reason") or ""), str(body.get("message") or ""))
        return cls(status, "", str(body)[:200])

    @property
    def not_found(self) -> bool:
        """The object does not exist."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """Somebody else changed, owns or created the object."""
        return self.status == 409

    @property
    def forbidden(self) -> bool:
        """RBAC or admission says no."""
        return self.status == 403
