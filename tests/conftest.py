"""Property tests: the same examples in every run and on every machine, new ones on request.

``HYPOTHESIS_PROFILE=explore pytest ...`` draws others; what it finds becomes a test of its own.
"""

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
