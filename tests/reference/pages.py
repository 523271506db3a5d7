"""The pages of docs/reference that are made from the code; a further one is a function that returns its text."""

from collections.abc import Callable
from typing import Final

from tests.reference import commands

from tidemark.environment import repository_folder

FOLDER: Final = repository_folder() / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {"commands.md": commands.page}
