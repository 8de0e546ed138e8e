"""Bring models here: from S3 whole, from the Hugging Face Hub what a plan needs, and weights."""

from lmi_backend.fetch.hub import hub_file
from lmi_backend.fetch.s3 import copy_s3, fetch_s3

__all__ = ["copy_s3", "fetch_s3", "hub_file"]
