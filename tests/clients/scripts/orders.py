"""What the obedient model is told to say: a text, an object, and a call of a tool before a text."""

import json

REPLY = "It is Rome."
CALL = {"name": "weather", "arguments": {"city": "Rome"}}
TURNS = [f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>", "It is sunny."]
LOOP = f"SAY {json.dumps(TURNS)}"
CHOSEN = f"SAY {json.dumps([json.dumps({'city': 'Rome'})])}"
TEXT = f"SAY {json.dumps([REPLY])}"


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city} is sunny"
