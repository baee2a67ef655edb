"""Turns a Hugging Face checkpoint of the Qwen2 family into a model bundle for the device."""

from convert.conversion import convert
from convert.errors import ConvertError, VerificationError
from convert.verify import Thresholds

__all__ = ["ConvertError", "Thresholds", "VerificationError", "convert"]
