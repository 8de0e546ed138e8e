"""Clients of OpenAI's Responses API."""
