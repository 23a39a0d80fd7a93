"""What is wrong with a SpecDeployment, as values: severity, a stable reason, where, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Errors keep an object from being rendered; warnings do not."""

    ERROR = "error"
    WARNING = "warning"


class FindingReason(StrEnum):
    """Stable names; an error's is the reason of condition `Valid`."""

    SYNTAX_ERROR = "SyntaxError"
    UNKNOWN_FIELD = "UnknownField"
    MISSING_FIELD = "MissingField"
    INVALID_VALUE = "InvalidValue"
    RULE_VIOLATED = "RuleViolated"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    DUPLICATE_NAME = "DuplicateName"
    NOTHING_FOUND = "NothingFound"
    RELEASE_UNKNOWN = "ReleaseUnknown"
    RELEASE_MISMATCH = "ReleaseMismatch"
    RELEASE_TOO_OLD = "ReleaseTooOld"
    RELEASE_UNTESTED = "ReleaseUntested"
    OWNED_FLAG = "OwnedFlag"
    UNKNOWN_FLAG = "UnknownFlag"
    AMBIGUOUS_FLAG = "AmbiguousFlag"
    CONFLICTING_FLAG = "ConflictingFlag"
    INVALID_FLAG_VALUE = "InvalidFlagValue"
    OWNED_ENV = "OwnedEnv"
    MODE_UNAVAILABLE = "ModeUnavailable"
    PACKAGE_NEEDED = "PackageNeeded"
    OWNED_DRAFT_ARG = "OwnedDraftArg"
    UNKNOWN_DRAFT_ARG = "UnknownDraftArg"
    INVALID_DRAFT_ARG = "InvalidDraftArg"
    LOSSY_NOT_ALLOWED = "LossyNotAllowed"
    ENGINE_MANAGED = "EngineManaged"
    UNTESTED_COMBINATION = "UntestedCombination"
    HOST_PATH_NOT_ALLOWED = "HostPathNotAllowed"
    CLAIM_NOT_SHARED = "ClaimNotShared"
    OWNED_TEMPLATE_FIELD = "OwnedTemplateField"
    INVALID_TEMPLATE = "InvalidTemplate"
    PRIVILEGED_TEMPLATE = "PrivilegedTemplate"
    UNREACHABLE_ROUTE = "UnreachableRoute"
    UNUSED_FIELD = "UnusedField"
    NOTHING_TO_WATCH = "NothingToWatch"
    MODEL_MISMATCH = "ModelMismatch"
    SERVED_NAME_MISMATCH = "ServedNameMismatch"
    DRAFT_MISMATCH = "DraftMismatch"
    ENGINE_SPEAKS_TLS = "EngineSpeaksTls"
    ENGINE_FORCES_USAGE = "EngineForcesUsage"
    SERVICE_HAS_CLUSTER_IP = "ServiceHasClusterIp"
    ARGUMENTS_UNREADABLE = "ArgumentsUnreadable"
    PROMETHEUS_UNKNOWN = "PrometheusUnknown"
    PROMETHEUS_URL_NOT_ALLOWED = "PrometheusUrlNotAllowed"
    DOES_NOT_FIT = "DoesNotFit"
    DRAFT_COSTS_SEQUENCES = "DraftCostsSequences"
    BY_HAND_UNREADABLE = "ByHandUnreadable"


FINDING_SENTENCES: dict[FindingReason, str] = {
    FindingReason.SYNTAX_ERROR: "The file is no YAML.",
    FindingReason.UNKNOWN_FIELD: "The schema has no field of this name.",
    FindingReason.MISSING_FIELD: "A required field is missing.",
    FindingReason.INVALID_VALUE: "A value has the wrong type, range, form or choice.",
    FindingReason.RULE_VIOLATED: "Fields contradict each other; the message says what to write instead.",
    FindingReason.UNSUPPORTED_VERSION: "The object's apiVersion is not served by this release.",
    FindingReason.DUPLICATE_NAME: "Two objects in the input have one name and namespace.",
    FindingReason.NOTHING_FOUND: "The input holds no SpecDeployment.",
    FindingReason.RELEASE_UNKNOWN: "The engine's release follows neither from the image tag nor from engine.version.",
    FindingReason.RELEASE_MISMATCH: "The image tag and engine.version name two releases.",
    FindingReason.RELEASE_TOO_OLD: "This engine release is older than what specfleet can render or count.",
    FindingReason.RELEASE_UNTESTED: "This engine release is newer than those that specfleet knows.",
    FindingReason.OWNED_FLAG: "The flag is set by specfleet; the message names the field to use.",
    FindingReason.UNKNOWN_FLAG: "This engine release does not know the flag.",
    FindingReason.AMBIGUOUS_FLAG: "The abbreviation stands for more than one flag of this engine release.",
    FindingReason.CONFLICTING_FLAG: "The flag cannot be combined with this draft mode.",
    FindingReason.INVALID_FLAG_VALUE: "The flag's value is not of the form that specfleet needs to read.",
    FindingReason.OWNED_ENV: "The environment variable is set by specfleet, or would change what it relies on.",
    FindingReason.MODE_UNAVAILABLE: "This engine release cannot draft in this mode; the message names what it can.",
    FindingReason.PACKAGE_NEEDED: "The mode needs a package that the engine's image may not have.",
    FindingReason.OWNED_DRAFT_ARG: "The key of the speculative config is set by specfleet from another field.",
    FindingReason.UNKNOWN_DRAFT_ARG: "This engine release does not know the key of the speculative config.",
    FindingReason.INVALID_DRAFT_ARG: "The value of a speculative config key has the wrong type or is not a choice.",
    FindingReason.LOSSY_NOT_ALLOWED: "The argument changes what the target would have answered; allowLossy is false.",
    FindingReason.ENGINE_MANAGED: "The engine adapts speculation itself, beside the policy.",
    FindingReason.UNTESTED_COMBINATION: "The engine does not promise that these options work together.",
    FindingReason.HOST_PATH_NOT_ALLOWED: "The operator's settings do not allow directories of the node.",
    FindingReason.CLAIM_NOT_SHARED: "A volume claim is for one pod, for one node, or cannot be written to.",
    FindingReason.OWNED_TEMPLATE_FIELD: "The template sets a field that specfleet owns.",
    FindingReason.INVALID_TEMPLATE: "The template is no partial PodTemplateSpec.",
    FindingReason.PRIVILEGED_TEMPLATE: "The template asks for rights that the operator's settings do not allow.",
    FindingReason.UNREACHABLE_ROUTE: "No request can reach the route: earlier routes take all that it matches.",
    FindingReason.UNUSED_FIELD: "The field has no effect beside another one.",
    FindingReason.NOTHING_TO_WATCH: "Routes begin in baseline, nothing goes to speculation: nothing to decide by.",
    FindingReason.MODEL_MISMATCH: "Pools, or pods and spec.target, name different models.",
    FindingReason.SERVED_NAME_MISMATCH: "A pool's pods do not take a model name that requests reach them with.",
    FindingReason.DRAFT_MISMATCH: "The pods draft otherwise than spec.drafts says; what they do is what counts.",
    FindingReason.ENGINE_SPEAKS_TLS: "The engines answer by TLS, the router speaks plain HTTP to them.",
    FindingReason.ENGINE_FORCES_USAGE: "The engines put usage on every chunk of a stream, asked or not.",
    FindingReason.SERVICE_HAS_CLUSTER_IP: "Behind a cluster IP the node's proxy picks the pod, not the router.",
    FindingReason.ARGUMENTS_UNREADABLE: "Engine arguments are hidden in a script: the spec has to say what they do.",
    FindingReason.PROMETHEUS_UNKNOWN: "Source Prometheus, and nobody says where it is.",
    FindingReason.PROMETHEUS_URL_NOT_ALLOWED: "The operator's settings do not allow a Prometheus of one's own.",
    FindingReason.DOES_NOT_FIT: "The accelerator has no room for one sequence beside the weights (`specfleet plan`).",
    FindingReason.DRAFT_COSTS_SEQUENCES: "The draft takes more than a fifth of the sequences (`specfleet plan`).",
    FindingReason.BY_HAND_UNREADABLE: "The annotation of `specfleet off` and `on` cannot be read in full.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        path: field path such as `spec.engine.args[speculative-config]`.
        message: what was expected, what was found and what to do.
    """

    severity: Severity
    reason: FindingReason
    path: str
    message: str

    def line(self) -> str:
        """`SEVERITY<TAB>REASON<TAB>path<TAB>message`, on one line whatever the text holds."""
        return "\t".join(" ".join(part.split()) for part in (self.severity, self.reason, self.path, self.message))


def error(reason: FindingReason, path: str, message: str) -> Finding:
    """A finding that keeps the object from being rendered."""
    return Finding(Severity.ERROR, reason, path, message)


def warning(reason: FindingReason, path: str, message: str) -> Finding:
    """A finding that a person should know of."""
    return Finding(Severity.WARNING, reason, path, message)


def errors(findings: list[Finding]) -> list[Finding]:
    """The errors among findings."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]
