"""A directory as the kubelet mounts a Secret or ConfigMap: files are links into `..data`, which is a link
to a folder with a date, and moves in one step when the object changes.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path


class Mounted:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        folder.mkdir()

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def put(self, **files: str | bytes) -> None:
        """The object's new keys, all at once."""
        fresh = self._folder / f"..{next(self._numbers)}"
        fresh.mkdir()
        for name, text in files.items():
            (fresh / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        old = self._folder / "..data"
        before = old.resolve() if old.exists() else None
        link = self._folder / "..data_tmp"
        link.symlink_to(fresh.name)
        link.replace(old)
        for name in files:
            if not (self._folder / name).is_symlink():
                (self._folder / name).symlink_to(f"..data/{name}")
        if before is not None:
            shutil.rmtree(before)

    def drop(self) -> None:
        """The object is gone, its links lead nowhere."""
        self.put()
