"""Which methods a route allows."""

from __future__ import annotations

from typing import Final

READ: Final = ["GET", "HEAD"]
"""Whatever is got can be asked for without its body; load balancers and proxies do."""
