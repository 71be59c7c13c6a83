"""Every limit of the gateway that is not a setting: size, depth, count and time."""

from __future__ import annotations

from typing import Final

MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers together."""
HEAD_SECONDS: Final = 30.0
"""Time for a connection to send a whole head."""
MAX_DISCARDED_BYTES: Final = 128 * 1024 * 1024
"""Input that is read and discarded after a refusal, so that the client can read the error."""
DISCARD_SECONDS: Final = 60.0
"""Time for that."""
LINGER_SECONDS: Final = 5.0
"""Time without input, and without a FIN, that a client has after the answer that ends its connection."""
WRITE_BUFFER_BYTES: Final = 64 * 1024
"""Unsent bytes of one connection, here and in the kernel each, above which its request waits."""
BODY_BUFFER_BYTES: Final = 64 * 1024
"""Unread bytes of one body above which reading from its connection is paused."""

MAX_HELD_BODY_BYTES: Final = 512 * 1024 * 1024
"""Total size of the bodies of all requests in flight; beyond it requests are refused."""
MAX_PARTIAL_BODY_BYTES: Final = 256 * 1024 * 1024
"""Total size of the bodies that are still arriving; beyond it the oldest gets a 408."""
TRIM_BODY_BYTES: Final = 64 * 1024 * 1024
"""Once this much of bodies was released, free memory is returned to the system."""
MAX_JSON_VALUES: Final = 250_000
"""Values in one body: parsing them takes at most a tenth of a second."""
MAX_JSON_DEPTH: Final = 64
"""Nesting of the fields without a fixed schema."""
INLINE_JSON_BYTES: Final = 64 * 1024
"""Bodies up to this size are parsed on the event loop, larger ones in a thread pool."""
JSON_THREADS: Final = 2

MAX_MESSAGES: Final = 4096
MAX_PARTS: Final = 1024
MAX_TOOL_CALLS: Final = 128
MAX_TOOLS: Final = 128
MAX_NAME_CHARS: Final = 256
MAX_DESCRIPTION_CHARS: Final = 16 * 1024
MAX_SCHEMA_BYTES: Final = 64 * 1024
"""The parameters of one tool, as JSON."""
MAX_CALL_SCHEMAS_CHARS: Final = 192 * 1024
"""The parameters of all tools that a constraint applies to, as JSON."""
MAX_TEMPLATE_KWARGS_BYTES: Final = 64 * 1024

MAX_CHOICES: Final = 128
MAX_TOP_LOGPROBS: Final = 20
MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 1024
MAX_STOP_TOKENS: Final = 128
MAX_BIASES: Final = 1024
MIN_REPETITION_PENALTY: Final = 0.01
MAX_REPETITION_PENALTY: Final = 10.0
MAX_TOKENS: Final = 2**31 - 1

MAX_METADATA: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512
MAX_LABEL_CHARS: Final = 512
"""Strings that are only labels, such as ``user``."""

MAX_SCRIPT_STEPS: Final = 65_536
MAX_SCRIPT_REPEAT: Final = 1_000_000
MAX_SCRIPT_DELAY_MS: Final = 60_000.0

MAX_MESSAGE_CHARS: Final = 500
MAX_PARAM_CHARS: Final = 100
MAX_PATH_CHARS: Final = 100
"""These three keep the body of an error below 4 KiB."""
MAX_IGNORED_NAMES: Final = 16
MAX_IGNORED_NAME_CHARS: Final = 64
"""These two bound the header ``x-pellucid-ignored``."""
