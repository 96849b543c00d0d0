"""Post the last body that a receiver got many times, concurrently, with the sinks' HTTP client
alone.

`python -m benchmarks.programs.poster ADDRESS COUNT AT_ONCE`; writes `result`: the duration in
seconds, CPU seconds, and peak memory.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time

import aiohttp
import uvloop

from benchmarks.programs.messages import emit


async def main(address: str, count: int, at_once: int) -> None:
    left = iter(range(count))
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{address}/last") as response:
            body = await response.read()

        async def post() -> None:
            for _ in left:
                async with session.post(f"{address}/changes", data=body) as response:
                    await response.read()
                    assert response.status == 200

        began, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(post() for _ in range(at_once)))
        emit(
            "result",
            took_s=time.monotonic() - began,
            cpu_s=time.process_time() - cpu_s,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
