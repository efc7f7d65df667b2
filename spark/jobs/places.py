"""Opens the place of a record: a path, or the URL of a file system that pyarrow supports.

The node and Spark both open the record here. `s3://bucket/folder` is an object store: its keys and
its address come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT_URL), every wait for it has a limit, and no Hadoop client is needed. An object is
always complete, so it is written under its own name; files are renamed into place.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from pyarrow import fs

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 20.0
ATTEMPTS = 2
_OBJECT_STORES = ("s3", "gcs")


def place(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path on it. Connects to nothing yet."""
    if url.startswith("s3://"):
        address = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
        return _s3(address, region), url.removeprefix("s3://").rstrip("/")
    if "://" in url:
        return fs.FileSystem.from_uri(url)
    return fs.LocalFileSystem(), str(Path(url).resolve())


def is_object_store(system: fs.FileSystem) -> bool:
    """Whether what is written there appears whole, without a rename."""
    return system.type_name in _OBJECT_STORES


def delete_folder(system: fs.FileSystem, path: str) -> None:
    """A folder with all in it. It need not be there."""
    below = fs.FileSelector(path, recursive=True, allow_not_found=True)
    found = system.get_file_info(below)
    try:
        if found or not is_object_store(system):
            system.delete_dir(path)
    except FileNotFoundError:
        return
    except OSError:
        # Object stores of some age delete one by one only.
        if not is_object_store(system):
            raise
        for each in found:
            if each.type == fs.FileType.File:
                system.delete_file(each.path)


@cache
def _s3(address: str, region: str) -> fs.FileSystem:
    parts = urlsplit(address)
    at = {"scheme": parts.scheme, "endpoint_override": parts.netloc} if address else {}
    return fs.S3FileSystem(
        **at,
        region=region or ("us-east-1" if address else None),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
