"""Tests of lmi-backend; what they share is in `support`."""
