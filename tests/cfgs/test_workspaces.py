"""The menus of wxParaver: every preset once, in the form that boost reads, and with the paths of installed copies."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cfgs.generate.paraver_cfg import TRACE_LACKS
from nsys2prv_ng.bundled.presets import install_presets, list_presets
from nsys2prv_ng.errors import UsageError
from tests.cfgs.cfg_checker import read_contents
from tests.cfgs.waits_trace import make_waits_trace
from tests.conftest import REPOSITORY

COMMITTED = REPOSITORY / "cfgs" / "workspaces.xml"
EVENT = "2"

# The classes in the order in which wxParaver's own file describes them, with the versions of its 4.11.4.
CLASSES = [
    ("workspace_manager", "0"),
    ("workspaces", "0"),
    ("item", "0"),
    ("second", "2"),
    ("autoTypes", "0"),
    ("item", "1"),
    ("hintCFGs", "0"),
    ("item", "0"),
    ("workspacesOrder", "0"),
]


def read_manager(path: Path) -> ElementTree.Element:
    manager = ElementTree.parse(path).getroot().find("workspace_manager")
    assert manager is not None
    return manager


def list_workspaces(path: Path) -> list[ElementTree.Element]:
    return read_manager(path).findall("workspaces/item/second")


def list_hints(path: Path) -> list[tuple[str, str]]:
    """Return path and text of each entry of all menus."""
    return [
        (hint.findtext("first") or "", hint.findtext("second") or "")
        for workspace in list_workspaces(path)
        for hint in workspace.findall("hintCFGs/item")
    ]


def list_event_types(workspace: ElementTree.Element) -> list[int]:
    values = [base64.b64decode(value.text or "") for value in workspace.findall("autoTypes/item/WorkspaceValue")]
    kinds, numbers = zip(*(struct.unpack("<iI", value) for value in values), strict=True)
    assert set(kinds) == {int(EVENT)}
    return list(numbers)


def test_menus_list_every_preset_once_with_its_summary() -> None:
    hints = list_hints(COMMITTED)
    assert sorted(hints) == [(f"{preset.name}.cfg", preset.summary) for preset in list_presets()]
    assert all((COMMITTED.parent / path).is_file() for path, _ in hints)


def test_counts_and_order_are_those_of_the_elements() -> None:
    manager = read_manager(COMMITTED)
    for element in manager.iter():
        if element.find("count") is not None:
            assert int(element.findtext("count") or 0) == len(element.findall("item")) > 0
    names = [item.findtext("first") for item in manager.findall("workspaces/item")]
    assert names == sorted(item.text or "" for item in manager.findall("workspacesOrder/item"))
    assert names == [workspace.findtext("name") for workspace in list_workspaces(COMMITTED)]
    assert len(set(names)) == len(names)


def test_each_class_is_described_where_it_first_occurs() -> None:
    elements = list(read_manager(COMMITTED).iter())
    described = [element for element in elements if element.attrib]
    assert [(element.tag, element.get("version")) for element in described] == CLASSES
    assert [element.get("class_id") for element in described] == [str(i) for i in range(len(CLASSES))]
    for tag in ("second", "autoTypes", "hintCFGs"):
        first, *others = [element for element in elements if element.tag == tag and len(element)]
        assert first.attrib and not any(other.attrib for other in others)


def test_a_trace_of_waits_opens_the_menu_of_waits(tmp_path: Path) -> None:
    make_waits_trace(tmp_path, 1)
    contents = read_contents(tmp_path / "trace.prv")
    shown = [
        workspace.findtext("name")
        for workspace in list_workspaces(COMMITTED)
        if set(list_event_types(workspace)) & set(contents.types)
    ]
    assert shown == ["nsys: Who waits for whom?"]


def test_presets_of_a_menu_show_its_event_types() -> None:
    for workspace in list_workspaces(COMMITTED):
        numbers = set(list_event_types(workspace))
        paths = [COMMITTED.parent / (hint.findtext("first") or "") for hint in workspace.findall("hintCFGs/item")]
        lines = [line for path in paths for line in re.findall(r"filter_module evt_type (.*)", path.read_text())]
        used = {int(number) for line in lines for number in line.split()[1:]}
        # Presets of GPU metrics name them, because their numbers differ between kinds of GPU.
        assert numbers & used or TRACE_LACKS in used, workspace.findtext("name")


def test_installed_menus_have_the_paths_of_the_copies(tmp_path: Path) -> None:
    folder = tmp_path / "R & D" / "cfgs"
    copies = install_presets(folder, force=False)
    hints = list_hints(folder / "workspaces.xml")
    presets = [copy for copy in copies if copy.suffix == ".cfg"]  # the others are filters
    assert sorted(path for path, _ in hints) == sorted(map(str, presets))
    summaries = [preset.summary for preset in list_presets() if preset.path.suffix == ".cfg"]
    assert sorted(text for _, text in hints) == sorted(summaries)
    install_presets(folder, force=False)  # the same again is no loss


def test_other_menus_are_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "workspaces.xml").write_text("mine")
    with pytest.raises(UsageError, match=r"workspaces\.xml: exists and differs"):
        install_presets(tmp_path, force=False)
    assert (tmp_path / "workspaces.xml").read_text() == "mine"
    install_presets(tmp_path, force=True)
    assert len(list_hints(tmp_path / "workspaces.xml")) == len(list_presets())
