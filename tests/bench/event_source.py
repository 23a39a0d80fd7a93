"""An upstream that writes events at a set pace and costs as little as Python can: `python event_source.py HOST PORT`.

GET /health is 200. A POST is answered with the number of events and the pace of its x-events and x-pace-ms headers;
asked for usage, with a usage event before [DONE] as vLLM has it.
"""

from __future__ import annotations

import asyncio
import json
import sys

EVENT = (
    b'data: {"id":"chatcmpl-89a7e19a485c7379","object":"chat.completion.chunk","created":1795987050,"model":"stub",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of HTTP/1.1."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def usage_event(events: int) -> bytes:
    """What vLLM 0.32 adds under our flags."""
    spec = {"mean_acceptance_length": 2.9, "draft_acceptance_rate": 0.47, "acceptance_histogram": [2, 3, 3, 0, 3]}
    spec |= {"num_spec_steps": events // 3, "num_accepted_draft_tokens": events // 2, "num_draft_tokens": events}
    usage = {"prompt_tokens": 37, "total_tokens": 37 + events, "completion_tokens": events}
    document = {"id": "x", "choices": [], "usage": usage, "metrics": {"speculative_decoding": spec}}
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection."""
    piece = chunk(EVENT)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            if head.startswith(b"GET"):
                writer.write(HEALTHY)
                continue
            events, pace = int(fields["x-events"]), float(fields["x-pace-ms"]) / 1000
            writer.write(HEAD)
            loop = asyncio.get_running_loop()
            start = loop.time()
            for number in range(events):
                writer.write(piece)
                # Against the clock, so that a busy machine sends the same number of events in the same time.
                await asyncio.sleep(max(0.0, start + (number + 1) * pace - loop.time()))
            if b'"include_usage":true' in body:
                writer.write(chunk(usage_event(events)))
            writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(host: str, port: int) -> None:
    """Serve for ever."""
    server = await asyncio.start_server(serve, host, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
