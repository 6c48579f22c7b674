"""The version of Tidewheel."""

__version__ = "0.1.0"
