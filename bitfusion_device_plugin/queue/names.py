"""Names of the queue's controller: its own, the reasons that pods and people are given."""

from __future__ import annotations

DEFAULT_NAME = "bitfusion-queue"

# Reasons of the condition `QUEUE_CONDITION`, and of Events behind `EVENT_PREFIX`: they change with the
# meaning only, messages also with the numbers.
WAITS = "WaitsForPool"
POOL_AWAY = "PoolAway"
TOO_LARGE = "LargerThanPool"
OTHER_GATES = "OtherGates"
REFUSED = "LiftRefused"
LIFTED = "Lifted"
SENT_BACK = "SentBack"  # Events only
HOLDS_UP = "HoldsUpOthers"  # Events only
EVENT_PREFIX = "Bitfusion"
