"""`python -m tests.reference` writes the pages of docs/reference anew."""

from tests.reference.pages import FOLDER, PAGES

for name, page in PAGES.items():
    (FOLDER / name).write_text(page(), "utf-8")
