"""The file that an explorer edits. It is read once, and written only on request."""

from __future__ import annotations

import hashlib
import os

from cujit.artifact.reading import BOM, path_of, read_file, shown_path, without_bom
from cujit.artifact.writing import write_file
from cujit.errors import FileError, FormatError
from cujit.explore.scene import ENDINGS, Scene, fault_of
from cujit.values import replace


class EditedFile:
    """The edited file as last read. Line ends and the byte-order mark are preserved."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read it.

        Raises:
            FileError: it cannot be read.
            FormatError: it is no source, no UTF-8, holds a NUL byte, or is too long.
        """
        name = path_of(path)
        if not name.lower().endswith(ENDINGS):
            raise FormatError(
                f"{shown_path(name)} is not an editable source: its name must end in {', '.join(ENDINGS)}",
                help="to view an image, run cujit inspect FILE --html",
            )
        self.path = os.path.realpath(name)
        self.name = shown_path(os.path.basename(name))
        self.text = self._read()

    def scene(self, wanted: Scene | None) -> Scene:
        """Return the scene of this file with the compile and launch settings of ``wanted``.

        Raises:
            CujitError: the architecture, an option, the GPU, or a check is invalid.
        """
        return replace(wanted or Scene(""), source=self.text, name=self.name).settled()

    def _read(self) -> str:
        data = read_file(self.path)
        self.digest = hashlib.sha256(data).hexdigest()
        self._has_bom = data.startswith(BOM)
        try:
            text = without_bom(data.decode("utf-8"))
        except UnicodeDecodeError as e:
            raise FormatError(
                f"{shown_path(self.path)} is not UTF-8", offset=e.start, help="save the file as UTF-8"
            ) from None
        if fault := fault_of(text):
            raise FormatError(f"{shown_path(self.path)} {fault}, so the explorer can't edit it")
        self._newline = "\r\n" if "\r\n" in text and "\n" not in text.replace("\r\n", "") else "\n"
        return text.replace("\r\n", "\n") if self._newline == "\r\n" else text

    def save(self, text: str, known: str, *, is_forced: bool) -> str:
        """Write a text to the file, and return its digest. ``known`` is the digest of the version that the page edited.

        Raises:
            FileError: the file has changed on disk since, or it can't be written.
        """
        if not is_forced and self._digest_now() not in (known, None):
            raise FileError(
                f"{self.name} has changed on disk since the explorer read it",
                filename=self.path,
                help="save again to overwrite it",
            )
        data = (BOM if self._has_bom else b"") + text.replace("\n", self._newline).encode()
        write_file(self.path, data, links="refuse")
        self.text, self.digest = text, hashlib.sha256(data).hexdigest()
        return self.digest

    def _digest_now(self) -> str | None:
        try:
            return hashlib.sha256(read_file(self.path)).hexdigest()
        except FileError:
            return None
