"""Command lines: thin faces over the transforms."""

import logging

# Beam says this on import wherever its optional Google Cloud parts are not installed.
logging.getLogger().addFilter(lambda record: not str(record.msg).startswith("apitools not found"))
