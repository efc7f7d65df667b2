"""Settings, chosen by NODE_MODE: `embedded` (default) or `production`.

The environment is read here and nowhere else; `.env.example` documents every variable.
"""

from .base import *  # noqa: F403
from .base import NODE_MODE

if NODE_MODE == "production":
    from .production import *  # noqa: F403
