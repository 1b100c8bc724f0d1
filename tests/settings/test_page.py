"""docs/settings.md is generated from the table of settings and is up to date."""

from __future__ import annotations

import importlib.util


def test_the_page_is_up_to_date(root):
    spec = importlib.util.spec_from_file_location("settings_page", root / "docs" / "settings_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python docs/settings_page.py"
