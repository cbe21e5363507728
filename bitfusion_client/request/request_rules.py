"""What a request may contain: the largest values, and the words that tell a person what is allowed."""

from __future__ import annotations

MOST_GPUS = 1024  # all GPUs of a request come from one server; far above any machine
MOST_MEMORY_MIB = 1 << 40
LONGEST_TIMEOUT = 2400 * 3600.0  # seconds, 100 days: below it a float keeps nanoseconds

ALLOWED_GPUS = f"must be a whole number from 1 to {MOST_GPUS}"
ALLOWED_PARTIAL = "must be greater than 0.0 and at most 1.0"
ALLOWED_MEMORY = "must be a whole number of MiB, at least 1"
ALLOWED_ONE_SIZE = "give either a share (-p) or an amount of memory (-m), not both"
ALLOWED_FILTER = "must be key=value, the key without spaces"
NO_OPTION = "must not begin with -, as an option of a command does"
ALLOWED_SERVER = "must be host:port, without spaces; several are joined by ;"
ALLOWED_TIMEOUT = "must be a duration, such as 90, 30m or 2m30s, longer than 0 and at most 2400h"
