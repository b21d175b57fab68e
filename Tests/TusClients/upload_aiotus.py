"""Uploads a file, or several as one, with aiotus, and prints the result as one line of JSON.

`errors` has the failures that aiotus logged, in order. With --deferred the first half is sent without a length.
"""

import argparse
import asyncio
import io
import json
import logging
from pathlib import Path

import aiohttp
import aiotus
import yarl
from aiotus import core, creation


class Kept(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


async def deferred(wanted):
    content = Path(wanted.files[0]).read_bytes()
    half = len(content) // 2
    async with aiohttp.ClientSession() as session:
        url = await creation.create(
            session, yarl.URL(wanted.endpoint), None, {}, headers={"Upload-Defer-Length": "1"}
        )
        await core.upload_buffer(
            session, url, io.BytesIO(content[:half]), chunksize=wanted.chunk
        )
        await core.upload_buffer(
            session,
            url,
            io.BytesIO(content),
            chunksize=wanted.chunk,
            headers={"Upload-Length": str(len(content))},
        )
        return url


async def upload(wanted):
    if wanted.deferred:
        return await deferred(wanted)
    config = aiotus.RetryConfiguration(
        retry_attempts=wanted.retries + 1, max_retry_period_seconds=0.1
    )
    metadata = {name: text.encode() for name, text in wanted.metadata.items()}
    files = [open(path, "rb") for path in wanted.files]
    options = {"metadata": metadata, "config": config, "chunksize": wanted.chunk}
    if len(files) > 1:
        return await aiotus.upload_multiple(wanted.endpoint, files, **options)
    return await aiotus.upload(wanted.endpoint, files[0], **options)


async def read_back(url):
    found = await aiotus.metadata(url)
    return {name: text.decode() for name, text in (found or {}).items()}


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--chunk", type=int, default=4 << 20)
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--metadata", type=json.loads, default={})
    parser.add_argument("--deferred", action="store_true")
    wanted = parser.parse_args()
    kept = Kept()
    logging.getLogger("aiotus").addHandler(kept)
    url = await upload(wanted)
    result = {"errors": kept.lines}
    if url is not None:
        result["url"] = str(url)
        result["metadata"] = await read_back(url)
    print(json.dumps(result))


asyncio.run(main())
