"""Open files in place of paths: files in memory, members of archives, compressed streams."""

import io
import shutil
import tempfile

MAX_IN_MEMORY = 2**26  # bytes; a longer archive is written to disk first
BLOCK = 2**20
N_START = 8  # bytes to read before the file is known to be an archive
ZIP_START = b"PK\x03\x04"
IS_TEXT = "path is a text file; open it in binary mode, such as 'rb' or 'wb'"


def write_to(file, write):
    """Call `write` with a temporary file, then copy it to `file`, which need not be seekable."""
    if isinstance(file, io.TextIOBase):
        raise TypeError(IS_TEXT)
    with tempfile.SpooledTemporaryFile(MAX_IN_MEMORY) as temporary:
        write(temporary)
        temporary.seek(0)
        shutil.copyfileobj(temporary, file, BLOCK)


def content_of(file):
    """Return the rest of an open file if it is an archive; the file need not be seekable."""
    content = io.BytesIO()
    while part := file.read(BLOCK if content.tell() >= N_START else N_START - content.tell()):
        if isinstance(part, str):
            raise TypeError(IS_TEXT)
        content.write(part)
        if content.tell() == N_START and not content.getvalue().startswith(ZIP_START):
            break
    return content.getvalue()


class Archive:
    """A file that refuses large reads while zipfile reads the directory of an archive.

    Each entry of the directory takes ten times its size in memory.
    """

    longest_read = None

    def read(self, size=-1):
        if self.longest_read is not None and size > self.longest_read:
            raise ValueError("its directory is too long")
        return super().read(size)


class ArchiveFile(Archive, io.FileIO):
    """On disk."""


class ArchiveBytes(Archive, io.BytesIO):
    """In memory."""
