"""The demo's three kinds of traffic, for a small base model that continues what it is given.

Whether look-up drafts pay depends on the text: an edited class or a list of records repeats what stands in the prompt,
a story does not. All three ask at temperature 0: the engine's CPU build leaves the temperature of a batch unset when
one request of it samples under speculation (docs/decisions/0501-demo-traffic.md); penalties keep the stories from
repeating themselves instead.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from tests.node.traffic import Ask

Maker = Callable[[random.Random, int], Ask]
"""Makes the request number n of one client."""

MODEL = "demo"
ANSWER_TOKENS = 48
STORY_TOKENS = 32
ROUTE_HEADER = "x-route"

_TYPES = ("Order", "Invoice", "Ticket", "Parcel", "Booking", "Account", "Payment", "Device")
_FIELDS = ("name", "owner", "street", "city", "country", "status", "priority", "created")
_TOPICS = (
    "a lighthouse keeper who finds a letter",
    "two sisters who open a bakery",
    "a violin that was lost in a train",
    "the first winter in a mountain village",
    "a chess player who forgets the rules",
    "a gardener and a very old tree",
    "the night when the harbour froze",
    "a postman who learns to paint",
)


def code(draw: random.Random, count: int) -> Ask:
    """An edit: the same class again under another name."""
    name = draw.choice(_TYPES)
    fields = draw.sample(_FIELDS, 3)
    source = _class_source(name, fields)
    prompt = f"# Before\n{source}\n# After: the same class, renamed to New{name}\nclass New{name}:\n"
    return _ask("code", prompt, count, headers={ROUTE_HEADER: "code"})


def json_records(draw: random.Random, count: int) -> Ask:
    """Records of one shape, asked for as JSON."""
    fields = draw.sample(_FIELDS, 3)
    rows = [{field: f"{field}-{draw.randrange(10, 99)}" for field in fields} for _ in range(4)]
    text = json.dumps({"records": rows})
    prompt = f"The records:\n{text}\n\nThe same records once more:\n"
    return _ask("json", prompt, count, response_format={"type": "json_object"})


def chat(draw: random.Random, count: int) -> Ask:
    """A story; what it repeats is penalised, as chat clients often ask."""
    topic = draw.choice(_TOPICS)
    prompt = f"Tell me a story about {topic}.\n\nIt was late when"
    return _ask("chat", prompt, count, max_tokens=STORY_TOKENS, presence_penalty=1.0, frequency_penalty=0.5)


def _ask(route: str, prompt: str, count: int, headers: dict[str, str] | None = None, **sampling: Any) -> Ask:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        **sampling,
    }
    # Half of the answers stream; of those, half ask for usage themselves and half leave it to the router.
    if count % 2 == 0:
        body["stream"] = True
        if count % 4 == 0:
            body["stream_options"] = {"include_usage": True}
    return Ask(route, body, headers or {})


def _class_source(name: str, fields: list[str]) -> str:
    arguments = ", ".join(fields)
    lines = [f"class {name}:", f"    def __init__(self, {arguments}):"]
    lines += [f"        self.{field} = {field}" for field in fields]
    for field in fields:
        lines += ["", f"    def get_{field}(self):", f"        return self.{field}"]
    return "\n".join(lines)
