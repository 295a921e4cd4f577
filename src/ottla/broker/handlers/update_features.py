"""UpdateFeatures: ottla's features have the level of its release. An update is accepted if it changes nothing.

Up to v1 each feature has a result; v2 answers for the whole request.
"""

from __future__ import annotations

from ottla.broker.handlers.api_versions import FEATURES, Levels
from ottla.broker.node import Call, Node
from ottla.errors import InvalidUpdateVersion, KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.UPDATE_FEATURES
TO_CONTROLLER = True
ONE_RESULT = 2


def handle(node: Node, call: Call, request: Struct) -> Message:
    problems = {update.feature: _problem(update) for update in request.feature_updates}
    if call.api_version >= ONE_RESULT:
        found = next((problem for problem in problems.values() if problem is not None), None)
        return _result(found)
    return {
        "error_message": None,
        "results": [{"feature": feature, **_result(problem)} for feature, problem in problems.items()],
    }


def _problem(update: Struct) -> KafkaError | None:
    levels: Levels | None = FEATURES.get(update.feature)
    if levels is None:
        return InvalidUpdateVersion(f"There is no feature {update.feature}; there are {', '.join(sorted(FEATURES))}.")
    if update.max_version_level != levels.last:
        return InvalidUpdateVersion(
            f"The feature {update.feature} has level {levels.last}, which this release of ottla does not change."
        )
    return None


def _result(problem: KafkaError | None) -> Message:
    if problem is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": problem.code, "error_message": str(problem)}
