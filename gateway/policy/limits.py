"""How large, deep and many the things in a request may be: every limit of the gateway that is not a setting."""

from __future__ import annotations

from typing import Final

MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers together."""
HEAD_SECONDS: Final = 30.0
"""Until a connection has sent a whole head."""
MAX_DISCARDED_BYTES: Final = 128 * 1024 * 1024
"""What is read and thrown away of a body that has been refused, so that the client gets to read why."""
DISCARD_SECONDS: Final = 60.0
"""How long that may take."""
LINGER_SECONDS: Final = 5.0
"""How long a client may send nothing, and not end its side, after the answer that ends its connection."""
WRITE_BUFFER_BYTES: Final = 64 * 1024
"""What may wait to be written to one connection before its request waits, here and in the system each."""
BODY_BUFFER_BYTES: Final = 64 * 1024
"""What may wait to be read of one body before its connection waits."""

MAX_HELD_BODY_BYTES: Final = 512 * 1024 * 1024
"""Bodies of all requests in flight together; one more is refused."""
MAX_PARTIAL_BODY_BYTES: Final = 256 * 1024 * 1024
"""Bodies that have not come to their end, all together; beyond it the oldest is given up."""
TRIM_BODY_BYTES: Final = 64 * 1024 * 1024
"""After bodies of this size have gone, memory is given back to the system."""
MAX_JSON_VALUES: Final = 250_000
"""Values in one body: parsing them takes a tenth of a second at most."""
MAX_JSON_DEPTH: Final = 64
"""Nesting of the parts of a request that have no fixed shape."""
INLINE_JSON_BYTES: Final = 64 * 1024
"""Bodies up to this size are read where they arrive, larger ones in a pool."""
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
"""The parameters of all tools that a constraint is about, as JSON."""
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
"""Strings that only name something, such as ``user``."""

MAX_SCRIPT_STEPS: Final = 65_536
MAX_SCRIPT_REPEAT: Final = 1_000_000
MAX_SCRIPT_DELAY_MS: Final = 60_000.0

MAX_MESSAGE_CHARS: Final = 500
MAX_PARAM_CHARS: Final = 100
MAX_PATH_CHARS: Final = 100
"""Of an error, so that its body stays below 4 KiB."""
MAX_IGNORED_NAMES: Final = 16
MAX_IGNORED_NAME_CHARS: Final = 64
"""In the header that tells which fields were ignored."""
