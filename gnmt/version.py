"""The version, on its own so that packaging can read it without importing the library."""

__version__ = "0.1.0"
