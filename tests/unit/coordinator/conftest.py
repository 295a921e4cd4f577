from __future__ import annotations

import pytest
from group_context import GroupContext


@pytest.fixture
def context() -> GroupContext:
    return GroupContext()
