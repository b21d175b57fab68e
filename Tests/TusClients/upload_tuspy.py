"""Uploads a file with tuspy, and prints the result as one line of JSON.

`errors` has the exceptions of tuspy, the first failure last, each with the status and content of the response. With
--store an upload that was begun earlier is continued.
"""

import argparse
import json
import sys

from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError, TusUploadFailed
from tusclient.storage.filestorage import FileStorage


def chain(error):
    while error is not None:
        if isinstance(error, (TusCommunicationError, TusUploadFailed)):
            content = error.response_content or b""
            yield f"{error.status_code}: {content.decode(errors='replace')}"
        error = error.__context__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("file")
    parser.add_argument("--chunk", type=int, default=sys.maxsize)
    parser.add_argument("--checksum", action="store_true")
    parser.add_argument("--retries", type=int, default=0)
    parser.add_argument("--metadata", type=json.loads)
    parser.add_argument("--store")
    wanted = parser.parse_args()
    result = {"errors": []}
    try:
        uploader = TusClient(wanted.endpoint).uploader(
            wanted.file,
            chunk_size=wanted.chunk,
            upload_checksum=wanted.checksum,
            retries=wanted.retries,
            retry_delay=0.1,
            metadata=wanted.metadata,
            store_url=wanted.store is not None,
            url_storage=wanted.store and FileStorage(wanted.store),
        )
        result["began"] = uploader.offset
        uploader.upload()
        result["url"] = uploader.url
        result["offset"] = uploader.get_offset()
    except (TusCommunicationError, TusUploadFailed) as error:
        result["errors"] = list(chain(error))
    print(json.dumps(result))


main()
