"""Load test of a service, for locust: `locust -f lab/benches/load.py --headless -H http://localhost:8080`.

    ... -u 16 -t 20s                       the capacity: each client asks again as soon as it is answered
    ... -u 200 -r 200 --rate 22 -t 300s    22 requests a second, whatever the responses are
    ... --data testbed:profile --fraction 0.1 --deadline 5

Responses are counted by status, each a row of locust's table. A refusal (503) is none of its failures; a
response that is none of the service's, or late (504), is. Not responsible for starting the service.
"""

from __future__ import annotations

import math
import os
import random
import sys
from typing import Any

from locust import FastHttpUser, constant_pacing, events, task

from lab.questions.items import load_items

HELD_OUT = 200
"""Questions of a source that are asked, in any order."""

sent: list[tuple[float, str, float]] = []
"""When each request was sent, its status, and the seconds to its response."""


def add_options(parser: Any) -> None:
    parser.add_argument("--data", default="tiny", help="ask held-out questions of this source")
    parser.add_argument("--fraction", type=float, help="share of the steps (default: the service's)")
    parser.add_argument("--deadline", type=float, help="seconds in which an answer has to be there")
    parser.add_argument("--rate", type=float, help="requests a second of all clients together")


def read_questions(environment: Any, **_: Any) -> None:
    sent.clear()
    environment.questions = [
        item.prompt for item in load_items([environment.parsed_options.data], HELD_OUT, 0)
    ]


class Device(FastHttpUser):
    def wait_time(self) -> float:
        rate = self.environment.parsed_options.rate
        clients = self.environment.runner.target_user_count
        return float(constant_pacing(clients / rate)(self)) if rate else 0.0

    @task
    def ask(self) -> None:
        options, key = self.environment.parsed_options, os.environ.get("CLOUD_ANCHOR_KEY")
        wanted = {"fraction": options.fraction, "deadline": options.deadline}
        body = {"prompt": random.choice(self.environment.questions)}
        body |= {name: value for name, value in wanted.items() if value is not None}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with self.client.post("/v1/anchors", json=body, headers=headers, catch_response=True) as response:
            response.request_meta["name"] = f"{response.status_code}"
            if response.status_code == 503:
                response.success()


def note(name: str, response_time: float, start_time: float, **_: Any) -> None:
    sent.append((start_time, name, response_time / 1000))


def say_refused(environment: Any, **_: Any) -> None:
    if deadline := environment.parsed_options.deadline:
        found = refused_in_time(sent, deadline)
        print(f"refused, though they would have been answered in time: {found}", file=sys.stderr)


def refused_in_time(requests: list[tuple[float, str, float]], deadline: float) -> int:
    """Requests refused that would have been answered before their deadline, had each followed the one
    admitted before it, by the mean time from one answer to the next.
    """
    ends = [began + seconds for began, status, seconds in requests if status == "200"]
    between = (max(ends) - min(began for began, *_ in requests)) / len(ends) if ends else math.inf
    answered, found = math.inf, 0
    for began, status, seconds in sorted(requests):
        if status == "200":
            answered = began + seconds
        elif status == "503":
            found += answered + between <= began + deadline
    return found


for event, listener in (
    (events.init_command_line_parser, add_options),
    (events.test_start, read_questions),
    (events.request, note),
    (events.quitting, say_refused),
):
    event.add_listener(listener)  # type: ignore[no-untyped-call]
